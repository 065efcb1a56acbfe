"""The statements that count jobs, in the explanation of a job and in figures, with old and new statistics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from django_pgqueue.monitoring.limits import WAITING
from tests.support.jobs import value
from tests.support.plans import CLAIM_INDEX, HISTORY, LIVE, fill
from tests.support.sessions import Connection

from .table import JOBS, MODES, Room, Statement

# --- pgqueue_why(): it reads as far as it counts, wherever the job stands

MANY = 4_000  # jobs of each kind, with the ids from 100,000 * its place on
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
    lambda one, _: one.execute(f"SELECT ({WAITING}) FROM pgqueue_limit", (100, 100)).fetchall(),
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

ROOMS = [
    Room(f"{name}{', analyzed' if analyzed else ''}", partial(make, analyzed=analyzed), statements,
         tables="pgqueue_job, pgqueue_worker")
    for name, make, analyzed, statements in (
        ("why", make_why, False, WHY), ("why", make_why, True, WHY),
        ("figures", make_figures, False, [*FIGURES, replace(COUNT, modes=MODES[1:])]),
        ("figures", make_figures, True, [*FIGURES, COUNT]),
    )
]  # fmt: skip
