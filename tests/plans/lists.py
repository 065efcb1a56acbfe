"""The statements of the admin: lists, pages and their actions, beside many live jobs and a history."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import RequestFactory
from django.utils import timezone

from django_pgqueue.admin import workflow
from django_pgqueue.admin.bulk import actions
from django_pgqueue.admin.bulk.actions import CANCEL, EDIT, RETRY, Effect, Shown, affected
from django_pgqueue.admin.failures import jobs_of
from django_pgqueue.admin.jobs import search
from django_pgqueue.admin.jobs.filters import on_shelves
from django_pgqueue.admin.lists import NamesInUse
from django_pgqueue.jobs.chunks import Cursor, take
from django_pgqueue.models import Job
from django_pgqueue.monitoring import jobs, queues
from tests.support.jobs import value
from tests.support.plans import CLAIM_INDEX, HISTORY, LIVE, fill
from tests.support.sessions import Connection

from .table import JOBS, Django, Room, Statement

NOW = "clock_timestamp()"
KEPT = "pgqueue_job_kept"

# --- Actions on many jobs: a chunk reads its own, wherever the walk is, and a count ends at its bound

SELECTED, SIZE, MOST = 30_000, 500, 1000


def make_selected(one: Connection) -> None:
    """Jobs that wait, and failed ones: of ten tasks in turn, and in two queues; and a few older ones."""
    columns: dict[str, Any] = {"task_path": "'shop.tasks.t' || n % 10", "queue_name": "'q' || n % 2"}
    blocked: dict[str, Any] = {"status": "'blocked'", "limit_key": "'k'", "wait_position": "n"}
    fill(one, LIVE, SELECTED, id="n", **columns)
    fill(one, KEPT, SELECTED, id=f"{SELECTED} + n", shelf="9", status="'failed'", finished_at=NOW, **columns)
    fill(one, LIVE, 20, id="-n", queue_name="'few'")
    fill(one, LIVE, 20, id="-100 - n", **blocked)
    fill(one, LIVE, 40, id="-200 - n", status="'running'", worker="7", lease="1")


def chunk(_: Connection, part: int, filters: dict[str, str], share: int) -> tuple[int, int]:
    limits = Shown(as_of=timezone.now().isoformat(), newest=2 * SELECTED)
    after = part * SELECTED + SELECTED // 2
    jobs = affected(Job.objects.filter(**filters), limits, RETRY[:5])
    found = take(jobs, Cursor(part, after), SIZE, lambda some: some.count())
    assert found is not None
    assert found.cursor.after <= after + share * SIZE
    return found.cursor.part, found.changed


def counted(_: Connection, filters: dict[str, Any], meant: tuple[Effect, ...]) -> list[tuple[int, bool]]:
    limits = Shown(as_of=timezone.now().isoformat(), newest=3 * SELECTED)
    found = actions.count(Job.objects.filter(**filters), limits, meant)
    return [(one[0], one[1]) for one in found]


SELECTION = Room("jobs of an action", make_selected, [
    *(
        Django(f"a chunk of part {part} with {filters or 'no filter'} reads its own jobs",
               partial(chunk, part=part, filters=filters, share=share),
               {JOBS: 2 * (share + 1) * SIZE + 100}, (part, SIZE))
        for part in (0, 1)
        for filters, share in (({}, 1), ({"queue_name": "q1"}, 2), ({"task_path": "shop.tasks.t3"}, 10))
    ),
    *(
        Django(f"a count of {name} ends at its bound or has an index",
               partial(counted, filters=filters, meant=meant), {JOBS: read + 200},
               [(number, number < MOST) for number in numbers],
               patched={"django_pgqueue.admin.bulk.actions.MOST_COUNTED": MOST})
        for name, filters, meant, numbers, read in (
            ("all jobs", {}, CANCEL, [MOST, 40, 0, MOST], 2 * MOST),
            ("a task", {"task_path": "shop.tasks.t3"}, CANCEL[:3], [MOST, 0, 0], 10 * MOST),
            ("a queue", {"queue_name": "few", "status": "pending"}, EDIT[:1], [20], 0),
            ("nothing", {"pk__in": []}, CANCEL[:1], [0], 0),
            ("a key", {"limit_key": "k", "wait_position__isnull": False, "status": "blocked"}, CANCEL[:1],
             [20], 0),
        )
    ),
])  # fmt: skip


# --- The jobs of a group of failures, among many jobs that failed in other ways


def make_failures(one: Connection) -> None:
    """A tenth of the waiting jobs has failed before, and a tenth is blocked. Half of the failed jobs are of
    one group.
    """
    fill(one, LIVE, 20_000, status="CASE n % 10 WHEN 0 THEN 'retry' WHEN 1 THEN 'blocked' ELSE 'pending' END",
         error_fingerprint="CASE WHEN n % 10 = 0 THEN 'f' || n % 1000 ELSE '' END")  # fmt: skip
    fill(one, KEPT, 20_000, shelf="9", status="'failed'", finished_at=NOW,
         error_fingerprint="CASE WHEN n % 2 = 0 THEN 'common' ELSE 'f' || n % 1000 END")  # fmt: skip
    fill(one, "pgqueue_job_past_1", 20_000, shelf="1", status="'done'", finished_at=NOW)


def page_of_group(_: Connection, fingerprint: str, status: str) -> int:
    jobs, term = on_shelves(status, Job.objects.all()), f"fingerprint:{fingerprint}"
    names = NamesInUse("default")
    found = search.search(jobs, term, "", full=True, meaning="fingerprint", now=None, names=names)
    page = (found.filter(status=status) if status else found).order_by("-pk").values_list("pk", flat=True)
    return len(page[:101])


def text_among_pending(one: Connection) -> int:
    """The newest 100 live jobs are looked into."""
    newest = value(one, f"SELECT max(id) FROM {LIVE}")
    jobs = Job.objects.filter(shelf=0, status="pending", pk__gt=newest - 100)
    names = NamesInUse("default")
    found = search.search(jobs, "none", "", full=True, meaning="text", now=Now(), names=names)
    return len(found.order_by("-pk").values("pk"))


FAILURES = Room("failures", make_failures, [
    Django("a text search does not read the index of the claim, however long it takes for a job",
           text_among_pending, {f"{LIVE}_pkey": (1, 60_000), CLAIM_INDEX: 0}, 0),
    *(
        Django(f"the list of {status or 'all'} jobs of {fingerprint} reads those that it shows",
               partial(page_of_group, fingerprint=fingerprint, status=status), {JOBS: 3 * 101},
               number if status in ("", has) else 0)
        for status in ("", "failed", "retry")
        for fingerprint, has, number in (
            ("f10", "retry", 20), ("f11", "failed", 20), ("common", "failed", 101), ("none", "", 0)
        )
    ),
    Django("the counts of a group read what they count", lambda _: jobs_of("default", "f10"), {JOBS: 3 * 20},
           (0, 20)),
], vacuum=LIVE, tables="pgqueue_job, pgqueue_worker")  # fmt: skip


# --- The list of jobs: a window of the jobs, and as little for its counts

MANY, RUNNING, WINDOW, PAGE = 10_000, 1_000, 300, 100
#: The names for the filters are read within limits of their own.
LISTED = {
    "django_pgqueue.admin.lists.KeysetChangeList.window": WINDOW,
    "django_pgqueue.admin.lists.PATIENCE": 0.0,  # one window
    "django_pgqueue.admin.lists.FIRST_LOOK": 0.0,
    "django_pgqueue.admin.jobs.search.PERIOD": search.PERIOD * 100,
    "django_pgqueue.admin.lists.NamesInUse.queues": ["q0", "q1"],
    "django_pgqueue.admin.lists.NamesInUse.tasks": ["tests.app.tasks.noop"],
}


def make_history(one: Connection, **columns: str) -> None:
    """A history on two shelves, and failed jobs of two queues."""
    for table, shelf, status in (("past_1", 1, "done"), ("past_2", 2, "done"), ("kept", 9, "failed")):
        fill(one, f"pgqueue_job_{table}", MANY, analyze=False, shelf=str(shelf), status=f"'{status}'",
             queue_name="'q' || n % 2", finished_at=f"{NOW} - n * interval '1 s'", **columns)  # fmt: skip


def make_listed(one: Connection) -> None:
    """The history, and live jobs in each state."""
    make_history(one, worker="n % 5000", kwargs="jsonb_build_object('n', n)", searched="ARRAY['n=' || n]")
    fill(one, LIVE, MANY, analyze=False, status="CASE n % 9 WHEN 0 THEN 'retry' ELSE 'pending' END")
    fill(one, LIVE, RUNNING, analyze=False, status="'running'", worker="n % 10", last_attempted_at=NOW)
    fill(one, LIVE, MANY, analyze=False, status="'blocked'", wait_position="n", limit_key="'a'")
    one.execute("ANALYZE pgqueue_job")


def list_jobs(_: Connection, query: str) -> int:
    request = RequestFactory().get(f"/?{query}")
    request.user = User(is_staff=True, is_superuser=True)
    return len(admin.site.get_model_admin(Job).get_changelist_instance(request).result_list)


def state_counts(_: Connection) -> None:
    found = queues.state_counts("default")
    assert {name for name, count in found.items() if not count.is_exact} >= {
        "running",
        "blocked",
        "failed",
        "done",
    }


LIST = Room("the list of jobs", make_listed, [
    *(
        # Two scans of the window, the rows of the page twice, and a row of each leaf and queue.
        Django(f"{query} has no index and reads a window", partial(list_jobs, query=query),
               {JOBS: 2 * WINDOW + 2 * PAGE + 60}, patched=LISTED)
        for query in (
            "worker=3", "worker=3&status=done", "worker=3&status=failed", "worker=3&status=pending",
            "enqueued=2020-01-01..2020-01-02", "enqueued=..2020-01-02&status=failed",
            "finished=..2020-01-02&status=done", "finished=..2020-01-02", "q=kwargs.n%3Dnone",
            "q=kwargs.n%3Dnone&status=done", "q=args.0%3Dnone&status=failed",
            "q=args.0%3Dnone&status=blocked",
        )
    ),
    Django("jobs that are due later are found without those that are due",
           partial(list_jobs, query="due=later"), {JOBS: 50}, 0,
           patched={**LISTED, "django_pgqueue.admin.lists.PATIENCE": 2.0}),
    *(
        Django(f"the list of {state} jobs reads those of its page, in the index of their state",
               partial(list_jobs, query=f"status={state}"), {JOBS: 2 * PAGE + 10}, PAGE, patched=LISTED)
        for state in ("retry", "blocked")
    ),
    Django("an indexed argument is found among all jobs", partial(list_jobs, query="q=n%3D5"), {JOBS: 40}, 3,
           patched=LISTED),
    Django("a running worker has an index", partial(list_jobs, query="worker=3&status=running"),
           {JOBS: 2 * (RUNNING // 10 + PAGE) + 10}, PAGE,
           patched={name: value for name, value in LISTED.items() if "NamesInUse" in name}),
    Django("the counts of the states read no more than their limit", state_counts,
           {(LIVE, "pgqueue_job_running", "pgqueue_job_state"): 5 * (WINDOW + 1), HISTORY[0]: WINDOW + 1 + 8,
            HISTORY[1]: WINDOW + 1 + 20},
           patched={"django_pgqueue.monitoring.queues.MOST": WINDOW}),
])  # fmt: skip


# --- The pages of tasks, queues and workers: a bounded number of rows, however long the history is

LAST, SOME, PROBES = 200, 10, 100
LIMITS = {"window": LAST, "some": SOME, "most": 20, "worker": 3, "task": "tests.app.tasks.noop"}


def make_pages(one: Connection) -> None:
    """The history, and running jobs of many workers."""
    make_history(one, worker="n % 5")
    fill(one, LIVE, MANY, analyze=False, status="'running'", worker="n % 50", queue_name="'q' || n % 2")
    one.execute("ANALYZE pgqueue_job")


PAGES = Room("pages", make_pages, [
    *(
        Statement(f"what ended last {of} is read up to a window",
                  lambda one, query=query: one.execute(query, LIMITS),
                  {"pgqueue_job_past": 2 * (LAST + 8) + PROBES, KEPT: 2 * 2 * SOME + PROBES,
                   LIVE: 2 * LAST + PROBES})
        for of, query in (("of a worker", jobs._OF_WORKER), ("of a task", jobs._CALLERS))
    ),
    Statement("lost jobs are counted up to a limit",
              lambda one: one.execute(queues._LOST_SQL, {"most": LAST, "lease": 30.0}),
              {(LIVE, "pgqueue_job_running"): 2 * LAST + PROBES, HISTORY: 0}),
    Statement("failures are counted up to a limit", lambda one: one.execute(queues._FAILURES, {"most": LAST}),
              {KEPT: 2 * 2 * LAST + PROBES, "pgqueue_job_past": 0}),
])  # fmt: skip


# --- A workflow, beside many other jobs with parents and batches

JOBS_EACH = 20_000  # on each of three shelves, with the ids from 1, 100,001 and 200,001 on
CHILDREN, MEMBERS, SHELVES = 4, 50, 3  # of each parent and each batch on each shelf


def make_workflow(one: Connection) -> None:
    """Batch n and parent n have jobs on each shelf."""
    for place, (leaf, shelf) in enumerate(((LIVE, 0), ("pgqueue_job_past_3", 3), (KEPT, 9))):
        fill(one, leaf, JOBS_EACH, id=f"{place * 100_000} + n", shelf=str(shelf), batch=f"n / {MEMBERS}",
             parents=f"ARRAY[n / {CHILDREN}, 500000 + n]::bigint[]",
             status="'failed'" if shelf else "'pending'",
             finished_at=NOW if shelf else "NULL::timestamptz")  # fmt: skip


def step(one: Connection, query: str, asked: dict[str, list[int]]) -> int:
    one.execute(workflow._PINNED)
    return len(one.execute(query, asked).fetchall())


ALL_STEPS = " UNION ".join(workflow._JOBS + condition for condition in workflow._STEPS.values())

WORKFLOW = Room("workflow", make_workflow, [
    *(
        # An index may count twice: its bitmap and its rows.
        Statement(f"a step from {asked} {part} reads the jobs that it finds",
                  partial(step, query=workflow._JOBS + workflow._STEPS[part],
                          asked={part: list(range(10, 10 + asked))}),
                  {JOBS: 3 * asked * each}, asked * each)
        for asked in (1, 300)
        for part, each in (("ids", 1), ("batches", MEMBERS * SHELVES), ("parents", CHILDREN * SHELVES))
    ),
    Statement("a step in three parts reads no more",
              partial(step, query=f"{ALL_STEPS} LIMIT 20001",
                      asked={part: [10, 11] for part in workflow._STEPS}),
              {JOBS: 3 * (2 + 2 * SHELVES * (MEMBERS + CHILDREN))}, 2 + 2 * SHELVES * (MEMBERS + CHILDREN)),
])  # fmt: skip

ROOMS = [SELECTION, LIST, PAGES, WORKFLOW, FAILURES]
