"""What the state machine does: each act calls the queue, and tells the model what must become of the jobs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from hypothesis.stateful import RuleBasedStateMachine
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from django_pgqueue.jobs.finish import Outcome, finish_statement
from tests.support import jobs as foreign
from tests.support.jobs import Range, claim_and_ask, value
from tests.support.sessions import Connection

from .model import CRASH_LIMIT, SCOPES, Expected, Model, Report

KEPT = {"done": 7.0, "cancelled": 7.0, "failed": 30.0}
"""Days for which jobs are kept that are over."""
ROWS = """
    SELECT id, status, shelf, priority, attempts, forgiven_attempts AS forgiven, crash_count, lost_in_a_row,
        lease, worker, cancel_requested_at IS NOT NULL AS is_asked, run_after <= clock_timestamp() AS is_due,
        limit_key AS "limit", unique_key AS "unique"
    FROM pgqueue_job ORDER BY id
"""

Places = Mapping[int, tuple[Any, ...]]


def check(connection: Connection, model: Model, workers: Collection[int]) -> None:
    """Compare all rows with the model."""
    rows: list[Any] = connection.cursor(row_factory=namedtuple_row).execute(ROWS).fetchall()
    found = [row.id for row in rows]
    assert found == sorted(model.jobs), f"the jobs are {found}, not {sorted(model.jobs)}"
    lines = defaultdict(set)
    for row in rows:
        _compare(model.jobs[row.id], row)
        if row.limit is not None and row.shelf == 0:
            lines[row.limit].add(row.status)
    still = [key for key, statuses in lines.items() if statuses == {"blocked"}]
    assert not still, f"nobody will release the line of {still}"
    running = [model.jobs[pk] for pk in model.of("running")]
    keyed = [job.limit for job in running if job.limit]
    assert len(keyed) == len(set(keyed)), f"two jobs of a key run: {keyed}"
    owners = {job.worker for job in running}
    assert owners <= set(workers), f"jobs are left to {owners}, and only {workers} are registered"


def _compare(job: Expected, row: Any) -> None:
    """Compare a row, whose columns are named as in the model."""
    if job.status == "waiting":
        usual = {"retry" if row.attempts else "pending", "pending"} | ({"blocked"} if row.limit else set())
        assert row.status in usual, f"job {job.pk} is {row.status}, and should wait"
        is_right = row.is_due == job.is_due or row.status == "blocked"
        assert is_right, f"job {job.pk}: due {row.is_due}, not {job.is_due}"
    else:
        assert row.status == job.status, f"job {job.pk} is {row.status}, not {job.status}"
    assert (row.shelf == 0) == job.is_live, f"job {job.pk} is {row.status} and on the shelf {row.shelf}"
    names = ["priority", "attempts", "forgiven", "limit", "unique"]
    if job.is_live:
        names += ["crash_count", "lost_in_a_row", "lease", "worker", "is_asked"]
    wrong = {name: getattr(row, name) for name in names if getattr(row, name) != getattr(job, name)}
    assert not wrong, f"job {job.pk} has {wrong}, unlike {job}"


def places(connection: Connection) -> Places:
    """Return where the jobs without a limit key stand."""
    query = "SELECT id, -priority, run_after FROM pgqueue_job_live WHERE limit_key IS NULL"
    return {pk: (*place, pk) for pk, *place in connection.execute(query).fetchall()}


def check_turn(model: Model, claimed: Sequence[int], before: Places, *, may_take_more: bool) -> None:
    """Check that a claim has passed over no job without a limit key."""
    left = [before[pk] for pk in model.of("waiting") if pk in before and model.jobs[pk].is_due]
    assert not (left and may_take_more), f"the claim has left jobs that are due: {left}"
    taken = [before[pk] for pk in claimed if pk in before]
    assert not (left and taken) or max(taken) < min(left), f"{max(taken)} was claimed before {min(left)}"


def check_put_aside(connection: Connection, model: Model, claimed: Sequence[int]) -> int:
    """Let a claim by SQL end the jobs that have expired, or have no attempts left, and return how many."""
    ended = 0
    for pk, status in connection.execute("SELECT id, status FROM pgqueue_job").fetchall():
        job = model.jobs[pk]
        if job.status == "waiting" and job.is_due and (job.is_expired or job.is_exhausted):
            assert pk not in claimed, f"job {pk} was claimed and should not run"
            if status in ("cancelled", "failed"):
                assert status == ("cancelled" if job.is_expired else "failed")
                job.status = status
                ended += 1
            else:
                assert claimed or job.limit, f"job {pk} should be over"
    return ended


def stuck(model: Model) -> set[str]:
    """Return the keys that have a free slot and jobs that are due."""
    running = {model.jobs[pk].limit for pk in model.of("running")}
    waiting = {
        job.limit
        for job in model.jobs.values()
        if job.status == "waiting" and job.is_due and not job.is_expired and not job.is_exhausted
    }
    return {key for key in waiting - running if key}


def forget_dropped(connection: Connection, model: Model) -> None:
    """Let the model forget what maintenance has dropped, if it was old enough."""
    left = {row[0] for row in connection.execute("SELECT id FROM pgqueue_job").fetchall()}
    for job in list(model.jobs.values()):
        if job.pk not in left:
            assert not job.is_live, f"job {job.pk} is lost"
            assert job.age >= KEPT[job.status], f"job {job.pk} was dropped after {job.age} days"
            del model.jobs[job.pk]
        elif job.status == "failed":
            assert job.age <= KEPT["failed"], f"job {job.pk} is kept for too long"


PRIORITIES = (0, 5)
RANGES = [Range(priority=priority) for priority in sorted(PRIORITIES, reverse=True)]
SOON = 1000.0
"""Seconds for which jobs are put off. Then they are due after `pass_seconds`."""
FRESH_RING = (
    "UPDATE pgqueue_ring SET current = 1, since = clock_timestamp(), retention = '7 days',"
    " failed_retention = '30 days'"
)


class Acts(RuleBasedStateMachine):
    """Jobs of one queue. The tables must be empty."""

    connection: ClassVar[Connection]
    """In autocommit mode. It is the same for all lives, or the server would plan all statements again."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.workers: list[int] = []

    def clear(self) -> None:
        """Empty the tables."""
        for table in ("job", "worker", "step", "window", "failure_note", "failure_group", "failure_count"):
            self.connection.execute(f"DELETE FROM pgqueue_{table}")
        self.connection.execute(FRESH_RING)

    def register(self) -> int:
        """Register a worker, and return its id."""
        self.workers.append(foreign.register(self.connection, "default"))
        return self.workers[-1]

    def add(self, *, on_conflict: str = "", commits: bool = True, **given: Any) -> None:
        """Enqueue a job, or roll that back."""
        new = Expected(0, **given)
        options = {"limit_key": new.limit.rpartition("/")[2]} if new.limit else {}
        if new.unique:
            options |= {
                "unique_key": new.unique, "unique_scope": SCOPES[new.unique], "on_conflict": on_conflict,
            }  # fmt: skip
        twin = self.model.twin(new.unique)
        try:
            with self.connection.transaction(force_rollback=not commits):
                pk = value(
                    self.connection,
                    "SELECT pgqueue_enqueue('tests.app.tasks.noop', priority => %s,"
                    " run_after => clock_timestamp() + %s * interval '1 s',"
                    " expires_at => clock_timestamp() + %s * interval '1 s', max_attempts => %s,"
                    " on_lost => %s, options => %s)",
                    new.priority, 0.0 if new.is_due else SOON, SOON if new.expires else None,
                    new.max_attempts, new.on_lost, Jsonb(options) if options else None,
                )  # fmt: skip
        except psycopg.errors.UniqueViolation:
            assert twin is not None
            assert on_conflict == "raise"
            return
        assert twin is None or on_conflict != "raise", "the twin was not seen"
        if not commits:
            return
        if twin is None:
            assert pk not in self.model.jobs
            new.pk = pk
            self.model.jobs[pk] = new
        else:
            assert pk == twin.pk
            if on_conflict == "replace" and twin.status == "waiting":
                self.model.replace(pk, new)

    def take(self, worker: int, at_most: int, *, in_python: bool) -> None:
        """Claim jobs."""
        before = places(self.connection)
        if in_python:
            lease = 1 + len(self.model.leases)  # those of SQL are large random numbers
            rows, refused = claim_and_ask(self.connection, at_most, worker=worker, lease=lease, ranges=RANGES)
            claimed, leases = [row.id for row in rows], [lease] * bool(rows)
            passed_over = sum(refused)
        else:
            others = foreign.sql_claim(self.connection, worker, at_most)
            claimed, leases = [row.id for row in others], sorted({row.lease for row in others})
            limited = any(self.model.jobs[pk].limit for pk in self.model.due())
            ended = check_put_aside(self.connection, self.model, claimed)
            passed_over = bool(claimed) * (ended + limited)
        assert len(leases) <= 1
        assert len(claimed) <= at_most
        assert not self.model.leases.intersection(leases), "a lease was used before"
        for pk in claimed:
            assert in_python or not self.model.jobs[pk].is_expired, f"job {pk} has expired"
            self.model.claim(pk, worker, leases[0])
        # A claim that finds jobs which it must not hand out may leave the rest to the next one.
        may_take_more = len(claimed) < at_most and not passed_over
        check_turn(self.model, claimed, before, may_take_more=may_take_more)
        if not in_python and may_take_more:
            assert not stuck(self.model), f"the claim has left {stuck(self.model)}"

    def tell(self, reports: list[Report]) -> None:
        """Report outcomes, of which those of lost leases are refused."""
        now = time.monotonic()
        said = [
            Outcome(
                report.pk, report.lease, report.outcome,  # type: ignore[arg-type]
                delay=SOON if report.is_later else None, started=now - 1 if report.has_started else None,
            )
            for report in reports
        ]  # fmt: skip
        statement, parameters = finish_statement(said)
        accepted = sorted(value(self.connection, statement, *parameters))
        expected = self.model.finish(reports)
        assert accepted == expected, f"the reports of {accepted} were accepted, not those of {expected}"

    def bury(self, worker: int, begun: list[int], alone: bool) -> list[int]:
        """Requeue the jobs of a dead worker, of which `begun` had started. Return all of them."""
        row = self.connection.execute(
            "SELECT jobs FROM _pgqueue_recover_worker(%s, %s::bigint[], NULL, %s, 'it died', %s, 1000, 20)",
            (worker, begun, alone, CRASH_LIMIT),
        ).fetchone()
        lost = self.model.lose(worker, begun, alone=alone)
        assert row == (len(lost),), f"{row} jobs were recovered of {lost}"
        self.workers.remove(worker)
        return lost

    def shift(self, table: str, by: str, *columns: str) -> None:
        """Let time pass by a change of the stored times."""
        given = ", ".join(f"{column} = {column} - interval '{by}'" for column in columns)
        with self.connection.transaction():
            self.connection.execute("SET LOCAL session_replication_role = replica")
            self.connection.execute(f"UPDATE {table} SET {given}")
