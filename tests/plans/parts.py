"""The statements about what belongs to jobs: batches, edges, steps, progress and payloads. And the ones
that count jobs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from django_pgqueue.models import Job
from django_pgqueue.monitoring import limits
from tests.receipts.models import Receipt
from tests.support.jobs import add, cancel, finish, retry, value
from tests.support.plans import CLAIM_INDEX, HISTORY, LIVE, fill
from tests.support.sessions import Connection

from .table import JOBS, MODES, Django, Room, Statement, count_depth, what_is_in_use

# --- Running jobs: four thousand of each kind

MANY = 4_000
#: Behind these ids are the members of a batch, parents, jobs with steps, and jobs with progress. The first
#: ones are plain.
MEMBERS, PARENTS, STEPPED, SHOWN, CHILDREN = (place * MANY for place in range(1, 6))
BATCH = 1_000_000
STEPS = 10  # of each job that has some
COMPOSED = ("pgqueue_edge", "pgqueue_batch", "pgqueue_tally")


def make_running(one: Connection) -> None:
    """Jobs of each kind, and children of two parents each."""
    fill(one, LIVE, 5 * MANY, id="n", status="'running'", worker="1", lease="1",
         marks=f"('{{0, 4, 2, 1, 8}}'::integer[])[1 + (n - 1) / {MANY}]",
         batch=f"CASE WHEN n > {MEMBERS} AND n <= {PARENTS} THEN {BATCH} END")  # fmt: skip
    fill(one, LIVE, MANY, id=f"{CHILDREN} + n", status="'blocked'", waiting_reason="'waits for jobs'",
         parents=f"ARRAY[{PARENTS} + n::bigint, {PARENTS} + n % {MANY} + 1]")  # fmt: skip
    fill(one, "pgqueue_edge", MANY, child_id=f"{CHILDREN} + n",
         parent_id=f"unnest(ARRAY[{PARENTS} + n, {PARENTS} + n % {MANY} + 1])")  # fmt: skip
    # A parent and a child that the statistics know well.
    fill(one, "pgqueue_edge", 3 * MANY, parent_id=f"{3 * BATCH}", child_id=f"{3 * BATCH} + n")
    fill(one, "pgqueue_edge", 3 * MANY, parent_id=f"{4 * BATCH} + n", child_id=f"{4 * BATCH}")
    fill(one, "pgqueue_batch", 5001, id=f"{BATCH} - 1 + n", is_open="false")
    fill(one, "pgqueue_tally", 5001, batch_id=f"{BATCH} - 1 + n", slot="1", added="5")
    fill(one, "pgqueue_step", MANY * STEPS, job_id=f"{STEPPED} + 1 + (n - 1) / {STEPS}",
         name=f"'step-' || 1 + n % {STEPS}", finished_at="clock_timestamp()", result="'1'")  # fmt: skip
    fill(one, "pgqueue_progress", MANY, job_id=f"{SHOWN} + n", done="n")
    one.execute(f"SELECT setval('pgqueue_job_id_seq', {2 * BATCH})")


def some(after: int, count: int = 50) -> list[int]:
    return list(range(after + 1, after + 1 + count))


def finished(one: Connection, after: int) -> int:
    return len(finish(one, some(after)))


def run_plain(one: Connection) -> tuple[int, int]:
    return finished(one, 0), cancel(one, add(one, 10))


def end_parents(one: Connection) -> tuple[int, int]:
    ended = finished(one, PARENTS)
    freed = f"SELECT count(*) FROM {LIVE} WHERE id > %s AND status = 'pending'"
    return ended, value(one, freed, CHILDREN)


def children_of(one: Connection) -> int:
    query = "SELECT id FROM pgqueue_job WHERE parents @> ARRAY[%s::bigint]"
    return len(one.execute(query, (PARENTS + 1,), prepare=True).fetchall())


def enqueue_child(one: Connection) -> None:
    add(one, options=json.dumps({"after": [PARENTS + 1, BATCH + 1], "batch": BATCH + 2}))
    one.execute("SET CONSTRAINTS pgqueue_attach IMMEDIATE")


def record(one: Connection, first: bool) -> Any:
    query = "SELECT _pgqueue_record_step(%s, 1, %s, 1, 'new', 0.1, NULL, '1')"
    return value(one, query, STEPPED + 5, first)


def fail_and_retry(one: Connection) -> tuple[int, int]:
    finish(one, [STEPPED + 7], "failed")
    return retry(one, [STEPPED + 7]), cancel(one, [STEPPED + 7])


def wait_and_send(one: Connection) -> Any:
    value(one, "SELECT held FROM _pgqueue_wait(%s, 1, 'approved', 'event', 60)", STEPPED + 9)
    return value(one, "SELECT pgqueue_send_event(%s, 'approved', '1')", STEPPED + 9)


def write(one: Connection, done: float | None, step: str | None) -> int:
    query = "SELECT _pgqueue_write_progress(%s, %s, %s::text[], %s::double precision[], %s, %s::text[])"
    return len(value(one, query, some(SHOWN), [1] * 50, [step] * 50, [done] * 50, [None] * 50, [""] * 50))


RUNNING = Room("running jobs", make_running, [
    Statement("plain jobs read nothing of what others have", run_plain,
              {(*COMPOSED, "pgqueue_step", "pgqueue_progress"): 0}, (50, 10)),
    # Also with jobs that have no line.
    Statement("asking what upkeep is needed reads three rows", what_is_in_use,
              {"pgqueue": 8}, (True, True, False), before=count_depth),
    Statement("members that end look at one that lives", partial(finished, after=MEMBERS),
              {(LIVE, "pgqueue_job_batch"): 4 * 50 + 10, COMPOSED: 6}, 50),
    Statement("parents that end read their edges and their children", end_parents, {"pgqueue_edge": 16 * 50},
              (50, 49)),
    Statement("a cancel of children reads no edges", lambda one: cancel(one, some(CHILDREN)),
              {"pgqueue_edge": 0}, 50),
    Statement("an enqueue reads its parents", enqueue_child, {(LIVE, *COMPOSED): 60}),
    Statement("the children of a parent are found by an index", children_of, {JOBS: 30}, 2),
    Statement("a round of upkeep of edges reads one page",
              lambda one: one.execute("SELECT looked, reached FROM _pgqueue_repair_edges(0, 100)").fetchone(),
              {(LIVE, *COMPOSED): 1500}, (100, CHILDREN + 100)),
    Statement("a round of upkeep of batches reads one page",
              lambda one: one.execute("SELECT looked, ended FROM _pgqueue_repair_batches(%s, 100)",
                                      (BATCH,)).fetchone(),
              {(LIVE, *COMPOSED): 1500}, (100, 100)),
    *(
        Statement(f"a record of {'the first' if first else 'another'} step reads the row of its job",
                  partial(record, first=first), {JOBS: 4, "pgqueue_step": 2}, "recorded")
        for first in (True, False)
    ),
    # The table and its index, to fold and to delete.
    Statement("a finish reads the steps of its jobs", partial(finished, after=STEPPED),
              {"pgqueue_step": 4 * 50 * STEPS + 50}, 50),
    Statement("a retry brings the steps back", fail_and_retry, {"pgqueue_step": 12 * STEPS}, (1, 1)),
    # The number of the steps of a job is limited.
    Statement("a wait and a signal read one step", wait_and_send, {"pgqueue_step": 2 * STEPS + 12, JOBS: 12},
              True),
    Statement("a write of progress reads its jobs and their rows", partial(write, done=5.0, step=None),
              {JOBS: 4 * 50, "pgqueue_progress": 4 * 50}, 50),
    Statement("the name of a step reads its jobs and no progress", partial(write, done=None, step="new"),
              {JOBS: 6 * 50, "pgqueue_progress": 0}, 50),
    Statement("a finish reads the progress of its jobs", partial(finished, after=SHOWN),
              {"pgqueue_progress": 3 * 50}, 50),
], vacuum=", ".join([LIVE, *COMPOSED, "pgqueue_step", "pgqueue_progress"]),
   tables=", ".join([JOBS, *COMPOSED, "pgqueue_step", "pgqueue_progress"]))  # fmt: skip


# --- Payloads, beside many other rows and a history

WAITING, DONE = 8_000, 8_000
RECEIPTS = "receipts_receipt"


def make_payloads(one: Connection) -> None:
    """Rows whose jobs wait, and as many whose jobs are done; ten rows for each order."""
    path = "'tests.receipts.tasks.send'"
    one.execute("UPDATE pgqueue_task SET swept_to = 0")
    fill(one, LIVE, WAITING, id=f"{DONE} + n", task_path=path)
    fill(one, "pgqueue_job_past_3", DONE, id="n", shelf="3", status="'done'", task_path=path,
         finished_at="clock_timestamp()")  # fmt: skip
    fill(one, "receipts_order", DONE // 10 + WAITING, id="n", total="0")
    fill(one, RECEIPTS, DONE + WAITING, job_id="n", order_id="1 + n / 10", email="'a@b.c'")
    one.execute("SELECT setval('pgqueue_job_id_seq', 1000000)")


def insert(one: Connection, count: int) -> None:
    one.execute(
        f"INSERT INTO {RECEIPTS} (order_id, email) SELECT 1, 'x' FROM generate_series(1, %s)", (count,)
    )


def delete(one: Connection, order: int) -> int:
    return one.execute(f"DELETE FROM {RECEIPTS} WHERE order_id = %s", (order,)).rowcount


PAYLOADS = Room("payloads", make_payloads, [
    *(
        Statement(f"an insert of {count} looks up its jobs by their keys", partial(insert, count=count),
                  {JOBS: 4 * count})
        for count in (1, 200)
    ),
    Statement("a deletion reads the live jobs of its rows", partial(delete, order=DONE // 10 + 50),
              {JOBS: 20 * 10}, 10),
    Statement("a deletion of rows whose jobs have finished reads no jobs", partial(delete, order=7),
              {JOBS: 0}, 10),
    Statement("a page of the sweep reads a page",
              lambda one, _: value(one, "SELECT swept FROM _pgqueue_sweep_payloads(500)"),
              {RECEIPTS: 1_001, JOBS: 2 * 501}, 0,
              before=lambda one: one.execute(f"UPDATE pgqueue_task SET swept_to = {DONE // 2}")),
    Django("those whose jobs wait are found without history",
           lambda _: Receipt.objects.filter(job__status="pending").count(), {HISTORY: 0}, WAITING),
    Django("those whose jobs failed are found without live jobs",
           lambda _: Receipt.objects.filter(job__status="failed").count(), {LIVE: 0}, 0),
    Django("the jobs of an order are found by indexes",
           lambda _: len(Job.objects.filter(receipts_receipt__order_id=7)), {JOBS: 60, RECEIPTS: 40}, 10),
], vacuum=f"{LIVE}, {RECEIPTS}", tables=f"pgqueue_job, {RECEIPTS}, receipts_order")  # fmt: skip

ROOMS = [RUNNING, PAYLOADS]


# --- pgqueue_why(): it reads as far as it counts, wherever the job stands, with old and new statistics

SLOTS = 300
KINDS: list[dict[str, str]] = [
    {"queue_name": "'deep'", "run_after": "clock_timestamp() - interval '1 day' + n * interval '1 s'"},
    {"queue_name": "'deep'", "priority": "50", "run_after": "clock_timestamp() + n * interval '1 h'"},
    {"queue_name": "'keyed'", "limit_key": "'full'", "wait_position": "n", "status": "'blocked'"},
    {"queue_name": "'keyed'", "limit_key": "'free'", "wait_position": "n", "status": "'blocked'"},
    {"queue_name": "'grouped'", "group_key": "'g' || n % 500"},
    {"queue_name": "'high'", "priority": "n % 90"},
    {"queue_name": "'task'", "status": "'blocked'", "waiting_reason": "'paused'"},
]
FIRST, LAST = 1, MANY


def make_why(one: Connection, analyzed: bool) -> None:
    """Backlogs of each kind, a worker whose slots are taken, and one with a free slot."""
    for place, columns in enumerate(KINDS):
        fill(one, LIVE, MANY, id=f"{place * 100_000} + n", analyze=False, **columns)
    fill(one, LIVE, SLOTS, id="900000 + n", status="'running'", worker="1", lease="n", analyze=False,
         limit_key="CASE n WHEN 1 THEN 'full' END", queue_name="'busy'")  # fmt: skip
    fill(one, "pgqueue_job_past_3", MANY, id="1000000 + n", shelf="3", status="'done'",
         finished_at="clock_timestamp()")  # fmt: skip
    for worker, queues in ((1, "{busy}"), (2, "{deep}"), (3, "{}")):
        one.execute(
            "INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, exclude_queues, slots, version)"
            f" VALUES (%s, 'web', 1, 1, %s, '{{busy}}', {SLOTS}, '1')", (worker, queues),
        )  # fmt: skip
    fill(one, LIVE, 1, id="910000", queue_name="'busy'", status="'pending'", analyze=analyzed)


def why(one: Connection, job: int) -> Any:
    # The workers of this room send no heartbeats.
    return value(one, "SELECT code FROM pgqueue_why(%s, 10000, 100000)", job)


WHY = [
    *(
        Statement(f"why of {name}", partial(why, job=job), {JOBS: most, HISTORY: 2}, code)
        for name, job, code, most in (
            ("the first of a backlog", FIRST, "ready", 200),
            ("the last of a backlog", LAST, "behind", 2_100),
            ("one of the future", 100_000 + FIRST, "scheduled", 50),
            ("the first of a line", 200_000 + FIRST, "limit", 50),
            ("the last of a line", 200_000 + LAST, "limit", 1_200),
            ("the last of a line that moves", 300_000 + LAST, "wait_queue", 1_500),
            ("the first of a group", 400_000 + FIRST, "behind", 2_600),
            ("the last of a group", 400_000 + LAST, "behind", 2_600),
            ("one below many priorities", 500_000 + 90, "behind", 3_000),
            ("a paused one", 600_000 + LAST, "pause_over", 50),
            ("one whose workers are busy", 910_000, "busy", 3_000),
            ("one that runs", 900_001, "running", 50),
            ("one of the history", 1_000_000 + LAST, "done", 50),
            ("none", 5_000_000, "unknown", 50),
        )
    ),
    Statement("the place of the last of a line",
              lambda one: value(one, "SELECT place FROM pgqueue_blocked_by(%s)", 200_000 + LAST),
              {JOBS: 1_500}, 1_001),
]  # fmt: skip


# --- Figures: a bounded number of rows, however many jobs wait


def make_figures(one: Connection, analyzed: bool) -> None:
    """Two queues and two priorities; half of the jobs are due, a tenth wait for a key, and a hundredth run.
    Unless they are analyzed, the statistics of the table are from before they came.
    """
    one.execute(f"ANALYZE {LIVE}")
    fill(
        one, LIVE, 20_000, analyze=False,
        queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END", priority="n % 2",
        run_after="clock_timestamp() + (n - 10000) * interval '1 minute'", worker="n % 4",
        status="CASE WHEN n % 10 = 5 THEN 'blocked' WHEN n % 100 = 1 THEN 'running' ELSE 'pending' END",
        limit_key="CASE WHEN n % 10 = 5 THEN 'key' || n % 50 END",
        wait_position="CASE WHEN n % 10 = 5 AND n % 4 = 1 THEN n END",
        waiting_reason="CASE WHEN n % 10 = 5 AND n % 4 = 3 THEN 'waits for job 1' ELSE '' END",
    )  # fmt: skip
    fill(one, "pgqueue_job_kept", 1000, shelf="9", status="'failed'", finished_at="clock_timestamp()")
    if analyzed:  # with VACUUM: until then a bitmap of a line this short seems to cost less
        one.execute(f"VACUUM (ANALYZE) {LIVE}")


def deep_queues(one: Connection) -> set[str]:
    rows = one.execute("SELECT queue_name, ready FROM _pgqueue_depth(100)")
    return {name for name, ready in rows if ready >= 100}


PROBES = 60  # each reads up to 16 entries

COUNT = Statement(
    "what waits for a limit is counted up to a number",
    lambda one, _: one.execute(f"SELECT ({limits.WAITING}) FROM pgqueue_limit", (100, 100)).fetchall(),
    {(LIVE, "pgqueue_job_line"): 3 * 100, HISTORY: 0}, [(100,)],
    before=lambda one: one.execute("INSERT INTO pgqueue_limit (name, concurrency) VALUES ('key5', 1)"),
)  # fmt: skip

FIGURES = [
    # Of two queues: what is due, and what is not due, of which the status is read as well.
    Statement("the depth reads as many jobs as it counts", deep_queues,
              {CLAIM_INDEX: 2 * 2 * 101 + PROBES, ("pgqueue_job_state",): 2 * 101 + 4, LIVE: 8 * 100 + PROBES,
               ("pgqueue_job_running",): 500, HISTORY: 0},
              {"default", "mail"}),
]  # fmt: skip

COUNTS = [
    Room(f"{name}{', analyzed' if analyzed else ''}", partial(make, analyzed=analyzed), statements,
         tables="pgqueue_job, pgqueue_worker")
    for name, make, analyzed, statements in (
        ("why", make_why, False, WHY), ("why", make_why, True, WHY),
        ("figures", make_figures, False, [*FIGURES, replace(COUNT, modes=MODES[1:])]),
        ("figures", make_figures, True, [*FIGURES, COUNT]),
    )
]  # fmt: skip
