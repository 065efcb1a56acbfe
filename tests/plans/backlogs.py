"""The statements of workers, of maintenance and of lists of jobs, beside long backlogs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from django_pgqueue.admin.jobs.search import order_of_jobs, search
from django_pgqueue.admin.lists import NamesInUse
from django_pgqueue.management._job_filters import Filters
from django_pgqueue.management.subcommands.jobs import readable
from django_pgqueue.models import Job
from django_pgqueue.models.job import Status
from django_pgqueue.models.joins import LIVE_SQL
from tests.support.jobs import (
    LONG_AGO,
    Range,
    add,
    cancel,
    claim,
    claim_groups,
    edit,
    finish,
    register,
    retry,
    sql_claim,
    value,
)
from tests.support.limits import release, repair, set_limit
from tests.support.plans import CLAIM_INDEX, HISTORY, LIVE, fill
from tests.support.sessions import Connection

from .table import JOBS, PINNED, Room, Statement, count_depth, what_is_in_use

BATCH = 50


def count(rows: Any) -> int:
    return len(rows)


def ids(one: Connection, table: str, limit: int = BATCH, order: str = "id") -> list[int]:
    return [row[0] for row in one.execute(f"SELECT id FROM {table} ORDER BY {order} LIMIT {limit}")]


def claimed(one: Connection, limit: int = BATCH, *ranges: Range) -> list[int]:
    return [row.id for row in claim(one, limit, ranges=ranges or [Range()])]


def listed(one: Connection, jobs: Any, limit: int) -> int:
    """Run the statement of a queryset."""
    return count(one.execute(*jobs[:limit].query.sql_with_params()).fetchall())


# --- Many jobs that are due, and half as many that are not

DEFAULT = [Range("default", 50), Range("mail", 0), Range("default", 0)]


def make_due(one: Connection) -> None:
    """Ready jobs in two queues, half as many that are not due, at a higher priority, and some history."""
    fill(one, LIVE, 40_000, queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END",
         run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip
    fill(one, LIVE, 20_000, priority="50", run_after="clock_timestamp() + n * interval '1 hour'")
    for shelf, name in ((1, "past_1"), (5, "past_5"), (9, "kept")):
        fill(one, f"pgqueue_job_{name}", 8_000, shelf=str(shelf), status="'failed'",
             finished_at="clock_timestamp()")  # fmt: skip


def few_are_due(one: Connection) -> int:
    """Register a worker, and a queue with three jobs that are due and many that are not."""
    fill(one, LIVE, 3, queue_name="'few'")
    fill(one, LIVE, 5_000, queue_name="'few'", run_after="clock_timestamp() + n * interval '1 hour'")
    return register(one)


def enqueue_many(one: Connection) -> int:
    columns = (
        "'a.b'::text", "'[]'::jsonb", "'{}'::jsonb", "'{}'::jsonb", "'mail'::text", "0", "NULL::timestamptz",
        "NULL::float", "NULL::float", "1", "NULL::int", "'rerun'::text",
    )  # fmt: skip
    arrays = ", ".join(f"array_fill({column}, '{{100}}')" for column in columns)
    return count(value(one, f"SELECT ids FROM _pgqueue_enqueue_many(0, {arrays}, NULL, NULL)"))


def first_due(one: Connection, queues: list[str] | None, known: Sequence[Any]) -> int:
    query = "SELECT count(*) FROM _pgqueue_first_due(%s, '{}', %s, %s, %s, %s, %s)"
    return int(value(one, query, queues, *known))


def claim_beside_running(one: Connection) -> list[int]:
    jobs = claimed(one, 1000)  # 1 in 100 stays running
    one.execute(f"ANALYZE {LIVE}")
    return jobs


def conflict(one: Connection) -> bool:
    """Enqueue jobs with keys that are taken, and let one go back whose key was taken meanwhile."""
    for scope in ("waiting", "live"):
        one.execute(
            f"INSERT INTO {LIVE} (task_path, unique_key, unique_scope, run_after)"
            " SELECT 'a.b', n, %s, clock_timestamp() + interval '1 day' FROM generate_series(1, 1000) AS n",
            (scope,),
        )
    for scope in ("waiting", "live"):
        for answer in ("existing", "replace", "earliest"):
            add(one, options=json.dumps({"unique_key": "500", "unique_scope": scope, "on_conflict": answer}))
    running = value(one, "SELECT _pgqueue_twin('500', 'waiting')")
    one.execute(f"UPDATE {LIVE} SET status = 'running', lease = 1, attempts = 1 WHERE id = %s", (running,))
    add(one, options='{"unique_key": "500"}')
    return finish(one, [running], "retry") == [running]


def waited_for(one: Connection, number: int) -> tuple[list[int], list[int]]:
    return ids(one, LIVE, number, "random()"), ids(one, "pgqueue_job_kept", number)


def look_for_parents(one: Connection, jobs: tuple[list[int], list[int]]) -> bool:
    given = jobs[0] + jobs[1]
    return {row[0] for row in one.execute(LIVE_SQL, (given, given), prepare=True)} == set(jobs[0])


def first_in_order(queue: str, one: Connection) -> int:
    jobs = Job.objects.filter(shelf=0, status="pending", **({"queue_name": queue} if queue else {}))
    return count(order_of_jobs("default", "pending", queue).keys(jobs, None, BATCH))


DUE = Room("due jobs", make_due, [
    Statement("a claim reads what it returns", lambda one: count(claim(one, BATCH, ranges=DEFAULT)),
              {CLAIM_INDEX: BATCH + 1, JOBS: 4 * BATCH, HISTORY: 0}, BATCH),
    Statement("a claim of ranges with nothing due reads nothing",
              lambda one: claim(one, BATCH, ranges=[Range("default", 50), Range("nobody", 3)]),
              {JOBS: 0}, []),
    *(
        # A few more entries tell which ranges there are: a step of the search reads up to 16.
        Statement(f"a claim by SQL of {number} from {queues or 'any queue'} reads what it returns",
                  lambda one, worker, number=number, queues=queues: count(
                      sql_claim(one, worker, number, queues)),
                  {CLAIM_INDEX: (1, number + 3 * 16 + 2), JOBS: 9 * number + 3 * 16 + 2, HISTORY: 0}, number,
                  before=register)
        for number in (1, BATCH) for queues in ([], ["mail", "nobody"])
    ),
    Statement("a claim by SQL does not read what is not due",
              lambda one, worker: count(sql_claim(one, worker, BATCH, ["few"])),
              {CLAIM_INDEX: 3 + 2 * 16 + 2}, 3, before=few_are_due),
    *(
        Statement(f"a finish as {kind} reads its jobs, whatever the statistics say",
                  lambda one, jobs, kind=kind: count(finish(one, jobs[:BATCH], kind)),
                  {"pgqueue_job_running": 0, JOBS: 8 * BATCH}, BATCH, before=claim_beside_running)
        for kind in ("done", "failed", "cancelled", "retry", "snooze", "release")
    ),
    # The policy of the task is read by its key, unless the table has a few pages only.
    Statement("an enqueue reads no jobs", lambda one: count(add(one, 10)), returns=10,
              only=("pgqueue_task",)),
    Statement("an enqueue of many reads no jobs", enqueue_many, returns=100, only=("pgqueue_task",)),
    *(
        Statement(f"a search for ranges of {queues or 'all queues'}, {name}, reads steps of 16",
                  partial(first_due, queues=queues, known=known), {JOBS: 3 * 16 + 2}, 3)
        for queues in (None, ["default", "mail"])
        for name, known in (("anew", [[]] * 5), ("from marks", [["default"], [False], [0], [LONG_AGO], [0]]))
    ),
    Statement("a cancel reads its jobs", cancel, {LIVE: 4 * BATCH}, BATCH, before=partial(ids, table=LIVE)),
    Statement("a retry reads its jobs", retry, {JOBS: 8 * BATCH}, BATCH,
              before=partial(ids, table="pgqueue_job_past_5")),
    Statement("a unique key that is taken is found by its index", conflict,
              {(LIVE, "pgqueue_job_unique"): 200}, True),
    *(
        Statement(f"a look for {number} jobs that are waited for reads these jobs", look_for_parents,
                  {LIVE: 2 * number, HISTORY: 0}, True, before=partial(waited_for, number=number))
        for number in (1, 100, 1_000)
    ),
    *(
        Statement(f"the list of a command with {filters or 'no filter'} reads what it shows",
                  lambda one, filters=filters: listed(
                      one, readable(Filters(**filters).jobs("default")).order_by("-pk"), 51),
                  {(LIVE, *HISTORY): most}, modes=PINNED)
        for filters, most in (
            ({}, 10 * 51),  # each leaf has its own index of ids
            ({"status": (Status.FAILED,)}, 60), ({"key": "sku-7"}, 20), ({"worker": 7}, 20),
            ({"batch": 7}, 20), ({"fingerprint": "f"}, 20),
        )
    ),
    *(
        Statement(f"the list of waiting jobs of {queue or 'all queues'} reads the claim's index in its order",
                  partial(first_in_order, queue), {LIVE: BATCH, CLAIM_INDEX: (1, BATCH + 10)}, BATCH,
                  only=(LIVE, CLAIM_INDEX), modes=PINNED, on_django=True)
        for queue in ("", "mail")
    ),
], vacuum=LIVE, tables="pgqueue_job, pgqueue_worker")  # fmt: skip


# --- Twenty thousand jobs of one group, and five thousand groups of a few

GROUP_INDEX = "pgqueue_job_group"
QUOTAS: dict[str | None, int] = {None: 1, "big": 1, **{f"tenant {number}": 1 for number in range(200)}}


def make_groups(one: Connection) -> None:
    """One large group, many small ones, and in the same queue some jobs without a group."""
    fill(one, LIVE, 20_000, group_key="'big'")
    fill(one, LIVE, 10_000, group_key="'tenant ' || n % 5000")
    fill(one, LIVE, 1_000)


GROUPS = Room("groups", make_groups, [
    Statement("a claim of groups reads what it returns", lambda one: count(claim_groups(one, QUOTAS, BATCH)),
              {(GROUP_INDEX, CLAIM_INDEX): BATCH + 2, JOBS: 4 * BATCH}, BATCH),
    Statement("a claim of one large group reads what it returns",
              lambda one: count(claim_groups(one, {"big": BATCH}, BATCH)),
              {(GROUP_INDEX, CLAIM_INDEX): BATCH + 2}, BATCH),
    Statement("a claim of plain jobs does not read groups", lambda one: count(claimed(one)),
              {CLAIM_INDEX: BATCH + 1, GROUP_INDEX: 0}, BATCH),
    Statement("a search takes a probe for each group",
              lambda one: one.execute("SELECT FROM _pgqueue_groups_after('default', 0, 'tenant 5', 100)"),
              {GROUP_INDEX: 100}),
], vacuum=LIVE)  # fmt: skip


# --- A wait queue of twenty thousand jobs, and five thousand of a few

LINE, KEYS = 20_000, 5_000


def make_lines(one: Connection) -> None:
    """A long line, plain jobs, and in another queue the jobs of many keys."""
    long: dict[str, Any] = {"limit_key": "'long'"}
    fill(one, LIVE, LINE, wait_position="n", status="'blocked'", **long)
    fill(one, LIVE, 1, wait_position="0", status="'running'", worker="1", lease="1", **long)
    fill(one, LIVE, 10, wait_position=f"{LINE} + n", queue_name="'zoo'", **long)
    fill(one, LIVE, 1_000)
    fill(one, LIVE, 2 * KEYS, queue_name="'keyed'", limit_key=f"'key/' || n % {KEYS}", wait_position="n",
         status=f"CASE WHEN n <= {KEYS} THEN 'pending' ELSE 'blocked' END")  # fmt: skip


LINES = Room("wait queues", make_lines, [
    Statement("a claim of plain jobs does not read the line", lambda one: count(claim(one, BATCH)),
              {CLAIM_INDEX: BATCH + 1, JOBS: 4 * BATCH}, BATCH),
    Statement("the gate does not read the line of a key in another queue",
              lambda one, _: count(claimed(one, 10, Range("zoo"))), {JOBS: 120}, 2,
              before=lambda one: set_limit(one, "long", 3)),
    Statement("the gate reads a few entries for each key",
              lambda one: count(claimed(one, BATCH, Range("keyed"))),
              {JOBS: 12 * BATCH}, BATCH),
    # Also with blocked jobs that wait for no other job.
    Statement("asking what upkeep is needed reads two rows", what_is_in_use,
              {JOBS: 4}, (False, False, True), before=count_depth),
    Statement("a release reads the first of each line",
              lambda one: release(one, "long", *(f"key/{number}" for number in range(1, BATCH + 1))),
              {JOBS: 8 * BATCH}, 1),
    Statement("a finish reads little more with a key", lambda one, jobs: count(finish(one, jobs)),
              {JOBS: 12 * BATCH}, BATCH, before=lambda one: claimed(one, BATCH, Range("keyed"))),
    Statement("a round of repair reads the first of each line", repair, {JOBS: 8 * 1_000}, 0),
    Statement("the search for a key reads its jobs alone",
              lambda one: listed(one, search(Job.objects.order_by("-pk"), "key:key/5", "", full=True,
                                             meaning="key", now=None,
                                             names=NamesInUse("default")).values("pk"), 101),
              {JOBS: 12}, 2, modes=PINNED),
], vacuum=LIVE)  # fmt: skip


# --- Twenty thousand jobs that wait because their task is paused

PAGE = 100
UNPAUSE = f"SELECT _pgqueue_unpause({PAGE})"


def make_paused(one: Connection) -> None:
    """Jobs of two tasks that were put aside."""
    one.execute("SELECT pgqueue_pause('task', 'shop.one'), pgqueue_pause('task', 'shop.two')")
    fill(one, LIVE, 20_000, status="'blocked'", waiting_reason="'paused by ann'",
         task_path="CASE WHEN n % 2 = 0 THEN 'shop.one' ELSE 'shop.two' END",
         run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip


def resume(one: Connection) -> int:
    value(one, "SELECT pgqueue_resume('task', 'shop.two')")
    return int(value(one, UNPAUSE))


def claim_and_put_aside(one: Connection) -> int:
    add(one, PAGE, task_path="shop.one")
    jobs = claimed(one, PAGE)
    assert finish(one, jobs, "paused", reason="paused") == jobs
    return count(jobs)


PAUSED = Room("paused tasks", make_paused, [
    Statement("a look for jobs to continue reads one of each task that is paused",
              lambda one: value(one, UNPAUSE),
              {JOBS: 8}, 0),
    Statement("a batch that continues reads only its jobs", resume, {JOBS: 6 * PAGE, HISTORY: 0}, PAGE),
    Statement("the claim and the report of a paused job read none of the others", claim_and_put_aside,
              {JOBS: 12 * PAGE}, PAGE),
    Statement("an edit reads its jobs", partial(edit, priority=5), {JOBS: 8 * PAGE}, PAGE,
              before=partial(ids, table=LIVE, limit=PAGE)),
], vacuum=LIVE, tables="pgqueue_job, pgqueue_pause")  # fmt: skip

ROOMS = [DUE, GROUPS, LINES, PAUSED]
