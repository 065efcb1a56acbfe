"""What the state machine does: each act calls the queue, and tells the model what must become of the jobs."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import psycopg
from hypothesis.stateful import RuleBasedStateMachine
from psycopg.types.json import Jsonb

from django_pgqueue.jobs.finish import FINISH_SQL, Outcome, finish_parameters
from tests.support import foreign
from tests.support.jobs import Range, claim_and_ask, value
from tests.support.sessions import Connection

from .checks import check_put_aside, check_turn, places, stuck
from .model import CRASH_LIMIT, SCOPES, Expected, Model, Report

__all__ = ["PRIORITIES", "Acts"]

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
        accepted = sorted(value(self.connection, FINISH_SQL, *finish_parameters(said, 20)))
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
