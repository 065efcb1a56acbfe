"""Stress composition: ``python -m benchmarks.flows_stress [--minutes M] [--seed N]``.

This uses a durable server (the one that DATABASE_URL names, or one of its own). Sessions build graphs of jobs
and batches, run and end jobs with all outcomes, add members to batches that run, cancel and retry jobs and
batches, and commit late. Some are killed in the middle of it, and then do the same again. The rounds of
maintenance run beside them. Fails if a job starts before its parents have finished, if a job or a batch
waits for nothing at the end, if a batch has counted wrong, or if there was a deadlock.

The seed repeats the random choices, but not the moments at which the sessions meet.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.bench import execute, one, rows, set_up

TASK = "benchmarks.tasks.noop"
DELAYS = (0, 0, 0, 0.001, 0.004, 0.02)  # seconds until a commit
_CLAIM = """
    UPDATE pgqueue_job_live AS job SET status = 'running', attempts = job.attempts + 1, worker = 1,
        lease = %s, started_at = clock_timestamp(), last_attempted_at = clock_timestamp()
    WHERE job.id = ANY (ARRAY(
        SELECT due.id FROM pgqueue_job_live AS due WHERE due.status IN ('pending', 'retry')
            AND due.run_after <= clock_timestamp() ORDER BY due.run_after, due.id LIMIT %s
        FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING job.id, job.batch
"""
_FINISH = (
    "SELECT accepted FROM _pgqueue_finish(%s::bigint[], array_fill(%s::bigint, ARRAY[%s]), %s::text[],"
    " NULL, NULL, NULL, NULL, NULL, NULL, NULL, 20)"
)
_LATE = """
    SELECT job.id, job.waiting_reason FROM pgqueue_job_live AS job
    WHERE job.status = 'blocked' AND NOT EXISTS (
        SELECT FROM pgqueue_parents(job.id) AS parent
        WHERE parent.state NOT IN ('done', 'cancelled', 'gone', 'failed')
            OR parent.state = 'failed' AND parent.if_failed = 'hold')
"""
_WRONG_BATCHES = """
    SELECT batch.id, batch.outcome, counted.*, real.* FROM pgqueue_batch AS batch
    CROSS JOIN LATERAL pgqueue_batch_counts(batch.id) AS counted
    CROSS JOIN LATERAL (
        SELECT count(*) AS added, count(*) FILTER (WHERE job.shelf = 0) AS live,
            count(*) FILTER (WHERE job.status = 'done') AS done,
            count(*) FILTER (WHERE job.status = 'failed') AS failed,
            count(*) FILTER (WHERE job.status = 'cancelled') AS cancelled
        FROM pgqueue_job AS job WHERE job.batch = batch.id
    ) AS real
    WHERE (counted.added, counted.live, counted.done, counted.failed, counted.cancelled)
            IS DISTINCT FROM (real.added, real.live, real.done, real.failed, real.cancelled)
        OR (batch.finished_at IS NULL) <> (real.live > 0 OR batch.is_open)
"""


class Stress:
    """What the sessions share."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.ends = False  # nothing new, and everything succeeds
        self.over = False
        self.lock = threading.Lock()
        self.recent: list[int] = []  # jobs and batches that others may wait for
        self.pids: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        """Count for the report."""
        with self.lock:
            self.counts[what] += number

    def remember(self, *ids: int) -> None:
        """Let others name these jobs and batches."""
        with self.lock:
            self.recent = [*self.recent, *ids][-300:]

    def some(self, choice: random.Random, most: int) -> list[int]:
        """Return some of the last jobs and batches."""
        with self.lock:
            return choice.sample(self.recent, min(len(self.recent), choice.randint(0, most)))


class Session:
    """A connection that repeats its turn, and is killed now and then."""

    def __init__(self, stress: Stress, name: str, turn: Callable[[Session], None]) -> None:
        self.stress, self.name, self.turn = stress, name, turn
        self.choice = random.Random(f"{stress.seed} {name}")
        self.claimed: list[tuple[int, int | None]] = []
        self.lease = 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.connection = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection that needs explicit commits."""
        connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=False)
        self.stress.pids[self.name] = connection.info.backend_pid
        return connection

    def work(self) -> None:
        """Repeat the turn until the end."""
        while not self.stress.over:
            try:
                self.turn(self)
            except psycopg.errors.AdminShutdown:
                self.stress.count("killed")
                self.connection = self.connect()
            except psycopg.OperationalError as error:
                if isinstance(error, psycopg.errors.DeadlockDetected):
                    self.stress.count("deadlocks")
                    self.stress.problems.append(f"deadlock of {self.name}: {error.diag.context}"[:400])
                self.go_on()
            except psycopg.IntegrityError as error:
                self.stress.count(f"refused {error.sqlstate}")
                self.go_on()
            except Exception as error:
                self.stress.problems.append(f"{self.name}: {error!r}"[:500])
                self.connection.close()
                self.connection = self.connect()

    def go_on(self) -> None:
        """Roll back, on another connection if this one was killed."""
        try:
            self.connection.rollback()
        except psycopg.OperationalError:
            self.stress.count("killed")
            self.connection = self.connect()

    def all(self, query: str, *parameters: Any) -> list[Any]:
        """Return the rows of a query."""
        return self.connection.execute(query, parameters).fetchall()

    def commit(self) -> None:
        """Commit, now or later."""
        time.sleep(self.choice.choice(DELAYS))
        self.connection.commit()

    def enqueue(self, **options: Any) -> int:
        """Enqueue a job."""
        ((job,),) = self.all(
            "SELECT pgqueue_enqueue(%s, options => %s)", TASK, json.dumps(options) if options else None
        )
        self.stress.count("jobs")
        self.stress.count("children", bool(options.get("after")))
        return int(job)


def build(session: Session) -> None:
    """Enqueue a small graph, some of it after what is there already."""
    choice, made = session.choice, []
    if session.stress.ends or one_backlog(session) > 3000:
        session.connection.rollback()
        time.sleep(0.05)
        return
    fresh = [session.enqueue() for _ in range(choice.randint(2, 6))]
    if choice.random() < 0.6:
        ((batch,),) = session.all("SELECT pgqueue_open_batch()")
        session.stress.count("batches")
        fresh += [session.enqueue(batch=batch) for _ in range(choice.randint(0, 5))]
        is_shared = choice.random() < 0.3
        if is_shared:
            session.commit()
            fresh += [session.enqueue(batch=batch) for _ in range(choice.randint(0, 3))]
        session.all("SELECT pgqueue_close_batch(%s)", batch)
        if is_shared:  # who closes a batch holds its row, for which a member that ends does not wait for long
            session.commit()
        made.append(batch)
    others = session.stress.some(choice, 3)
    for number in range(choice.randint(1, 6)):
        names = choice.sample(fresh + made, min(len(fresh + made), choice.randint(1, 5)))
        after = list({*names, *(others if number == 0 else ())})
        policy = choice.choice(("hold", "cancel", "run"))
        more = {"batch": made[0]} if made and made[0] not in after and choice.random() < 0.1 else {}
        fresh.append(session.enqueue(after=after, if_failed=policy, **more))
    session.commit()
    session.stress.remember(*fresh, *made)


def one_backlog(session: Session) -> int:
    """Return how many jobs are live."""
    return int(session.all("SELECT count(*) FROM pgqueue_job_live")[0][0])


def run(session: Session) -> None:
    """Claim jobs, and report how they ended. After a kill, report again, or give them back."""
    choice, stress = session.choice, session.stress
    if not session.claimed:
        session.lease = choice.getrandbits(40)
        session.claimed = sorted(session.all(_CLAIM, session.lease, choice.choice((1, 2, 5, 20))))
        ids = [job for job, _ in session.claimed]
        if ids and (early := session.all("SELECT * FROM pgqueue_edge WHERE child_id = ANY (%s)", ids)):
            stress.problems.append(f"jobs have started too early: {early}")
        session.connection.commit()
        if not ids:
            time.sleep(0.005)
            return
        stress.count("runs", len(ids))
    for _, batch in session.claimed:
        if batch is not None and not stress.ends and choice.random() < 0.15:
            stress.remember(session.enqueue(batch=batch))
            if choice.random() < 0.5:
                session.commit()
    ids = [job for job, _ in session.claimed]
    kinds = (
        ["done"] * 17
        if stress.ends
        else ["done"] * 15 + ["failed", "failed", "cancelled", "retry", "release"]
    )
    outcomes = [choice.choice(kinds) for _ in ids]
    session.all(_FINISH, ids, session.lease, len(ids), outcomes)
    session.commit()
    session.claimed = []


def meddle(session: Session) -> None:
    """Cancel and retry jobs and batches, attach to what runs, and edit."""
    choice, stress = session.choice, session.stress
    if stress.ends:
        time.sleep(0.05)
        return
    ids = stress.some(choice, 4)
    what = choice.choice(
        ("cancel", "cancel", "snapshot", "retry", "retry", "cancel batch", "retry batch", "edit")
    )
    if what == "snapshot":
        session.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.all("SELECT count(*) FROM pgqueue_edge")
        time.sleep(choice.choice(DELAYS))
        session.all("SELECT pgqueue_cancel(%s::bigint[])", ids)
    elif what == "edit":
        session.all("SELECT pgqueue_edit(%s::bigint[], 1)", ids)
    elif what in ("cancel", "retry"):
        session.all(f"SELECT pgqueue_{what}(%s::bigint[])", ids)
    else:
        for (batch,) in session.all("SELECT id FROM pgqueue_batch WHERE id = ANY (%s)", ids)[:1]:
            session.all(f"SELECT pgqueue_{what.replace(' ', '_')}(%s)", batch)
    stress.count(what)
    session.commit()
    time.sleep(choice.choice((0.01, 0.05)))


def keep_up(session: Session) -> None:
    """Do the rounds of maintenance, more often than a supervisor."""
    for query in (
        "SELECT ended FROM _pgqueue_repair_batches(0, 100000)",
        "SELECT settled FROM _pgqueue_repair_edges(0, 100000)",
    ):
        ((found,),) = session.all(query)
        session.connection.commit()
        session.stress.count("left to maintenance", found)
    time.sleep(0.2)


def kill(session: Session) -> None:
    """Kill another session."""
    time.sleep(session.choice.uniform(0.1, 0.5))
    spared = ("kill", "maintenance")
    victims = [pid for name, pid in session.stress.pids.items() if not name.startswith(spared)]
    if not session.stress.ends:
        session.all("SELECT pg_terminate_backend(%s)", session.choice.choice(victims))
    session.connection.commit()


def main() -> None:
    """Run the stress, wait for the end of everything, and check it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    set_up()
    print(f"seed {options.seed}")
    execute("TRUNCATE pgqueue_job, pgqueue_edge, pgqueue_batch, pgqueue_tally")
    execute("VACUUM ANALYZE")
    stress = Stress(options.seed)
    sessions = [
        *(Session(stress, f"build {n}", build) for n in range(2)),
        *(Session(stress, f"run {n}", run) for n in range(5)),
        *(Session(stress, f"meddle {n}", meddle) for n in range(2)),
        Session(stress, "maintenance", keep_up),
        Session(stress, "kill", kill),
    ]
    for session in sessions:
        session.thread.start()
    time.sleep(options.minutes * 60)
    stress.ends = True
    time.sleep(1)
    execute("SELECT pgqueue_close_batch(id) FROM pgqueue_batch WHERE is_open AND finished_at IS NULL")
    deadline = time.monotonic() + 60 + 60 * options.minutes
    while one("SELECT EXISTS (SELECT FROM pgqueue_job_live WHERE status <> 'blocked')") or rows(_LATE):
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    time.sleep(1)
    stress.over = True
    for session in sessions:
        session.thread.join()
    stress.problems += [f"waits for nothing: {row}" for row in rows(_LATE)]
    stress.problems += [f"wrong batch: {row}" for row in rows(_WRONG_BATCHES)]
    print(dict(sorted(stress.counts.items())))
    for problem, number in Counter(stress.problems).most_common(20):
        print(f"{number} x {problem}")
    print("problems" if stress.problems else "nothing was lost")
    raise SystemExit(1 if stress.problems else 0)


if __name__ == "__main__":
    main()
