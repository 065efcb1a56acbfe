"""The state machine: random calls of everything that moves jobs, compared with the model after each of them.

Time passes by a change of the stored times. A wrong answer is shrunk to the few calls that lead to it.

The short form makes only a thousand calls, so each of them is to matter: jobs and workers are there from the
beginning, and workers often come back and report jobs that others have taken over.
"""

from __future__ import annotations

import time
import traceback
from itertools import count
from typing import Any

import psycopg
from hypothesis import HealthCheck, seed, settings, strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.support.jobs import cancel, edit, retry, rotate, value
from tests.support.sessions import Connection, open_raw

from .acts import PRIORITIES, Acts, check, forget_dropped
from .functions import Calls
from .model import SCOPES, Report

OUTCOMES = ("done", "failed", "cancelled", "retry", "snooze", "release", "unknown")
FIRST: dict[str, dict[str, Any]] = {
    "plain": {}, "limited": {"limit": "tests.app.tasks.noop/1"}, "expires": {"expires": True},
    "once": {"max_attempts": 1, "on_lost": "fail", "expires": True},
}  # fmt: skip
"""The jobs that may be there from the beginning."""


def machine() -> st.SearchStrategy[Any]:
    """Return the machine itself, to choose from what it has."""
    return st.runner()


def some(*statuses: str) -> st.SearchStrategy[list[int]]:
    """Return some jobs with these statuses, or with any."""
    return machine().flatmap(
        lambda self: st.lists(
            st.sampled_from(self.model.of(*statuses) if statuses else [*sorted(self.model.jobs), 0]),
            min_size=1, max_size=4, unique=True,
        )
    )  # fmt: skip


def one_worker() -> st.SearchStrategy[int]:
    return machine().flatmap(lambda self: st.sampled_from(self.workers))


def outcomes() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4)


class LifeOfJobs(Acts):
    """The rules: who may do what, and when."""

    @initialize(
        names=st.lists(st.sampled_from([*FIRST]), min_size=2, max_size=4),
        before=st.lists(st.sampled_from(["done", "failed"]), min_size=1, max_size=2),
    )
    def begin(self, names: list[str], before: list[str]) -> None:
        """Enqueue the first jobs. Some of them run, and others are over."""
        self.clear()
        first, second = self.register(), self.register()
        for kind in before:
            self.add()
            self.take(first, 1, in_python=True)
            self.tell([Report(pk, self.model.jobs[pk].lease or 0, kind) for pk in self.model.of("running")])
        for name in names:
            self.add(**FIRST[name])
        for worker in (first, second):
            self.take(worker, 1, in_python=True)

    def teardown(self) -> None:
        self.clear()

    # Enqueue.

    @rule(
        priority=st.sampled_from(PRIORITIES), is_later=st.booleans(), expires=st.booleans(),
        max_attempts=st.sampled_from([None, 1, 2]), on_lost=st.sampled_from(["rerun", "fail"]),
        unique=st.sampled_from([None, None, None, *SCOPES]),
        limit=st.sampled_from([None, None, "tests.app.tasks.noop/1", "tests.app.tasks.noop/2"]),
        on_conflict=st.sampled_from(["existing", "replace", "raise"]),
        commits=st.sampled_from([True, True, True, False]),
    )  # fmt: skip
    def enqueue(
        self, priority: int, is_later: bool, expires: bool, max_attempts: int | None, on_lost: str,
        unique: str | None, limit: str | None, on_conflict: str, commits: bool,
    ) -> None:  # fmt: skip
        """Enqueue a job, or roll that back."""
        self.add(
            priority=priority, is_due=not is_later, expires=expires, max_attempts=max_attempts,
            on_lost=on_lost, unique=unique, limit=limit, on_conflict=on_conflict, commits=commits,
        )  # fmt: skip

    # Workers.

    @precondition(lambda self: self.model.due())
    @rule(worker=one_worker(), at_most=st.integers(1, 4), in_python=st.booleans())
    def claim(self, worker: int, at_most: int, in_python: bool) -> None:
        """Claim as a worker in Python does, or as one in another language."""
        self.take(worker, at_most, in_python=in_python)

    @precondition(lambda self: self.model.of("running"))
    @rule(pks=some("running"), kinds=outcomes(), is_later=st.booleans(), has_started=st.booleans())
    def finish(self, pks: list[int], kinds: list[str], is_later: bool, has_started: bool) -> None:
        """Report jobs that run, several at once."""
        self.tell([
            Report(pk, self.model.jobs[pk].lease or 0, kind, is_later, has_started)
            for pk, kind in zip(pks, kinds, strict=False)
        ])  # fmt: skip

    @precondition(lambda self: self.model.lost())
    @rule(kinds=outcomes(), data=st.data(), with_others=st.booleans())
    def report_lost_leases(self, kinds: list[str], data: st.DataObject, with_others: bool) -> None:
        """Report jobs with leases that are lost, maybe together with others that are held."""
        lost = data.draw(st.lists(st.sampled_from(self.model.lost()), min_size=1, max_size=3, unique=True))
        named = dict(reversed(lost))
        if with_others:
            named = {pk: self.model.jobs[pk].lease or 0 for pk in self.model.of("running")[:1]} | named
        self.tell([
            Report(pk, lease, kind) for (pk, lease), kind in zip(named.items(), kinds, strict=False)
        ])  # fmt: skip

    @precondition(lambda self: self.model.leases and self.model.jobs)
    @rule(pks=some(), kind=st.sampled_from(OUTCOMES), data=st.data())
    def finish_one(self, pks: list[int], kind: str, data: st.DataObject) -> None:
        """Report a job as a worker in another language does. What is refused is an error."""
        job = self.model.jobs.get(pks[0])
        leases = [*(job.leases if job else ()), 0, max(self.model.leases)]
        report = Report(pks[0], data.draw(st.sampled_from(leases)), kind)
        is_live = job is not None and job.is_live
        is_running = job is not None and job.status == "running"
        refused = "23Q02" if is_running else "23Q03" if is_live else "23Q01"
        expected = "" if self.model.finish([report]) else refused
        given = ""
        try:
            self.connection.execute(
                "CALL pgqueue_finish(%s, %s, %s, started_ago => 1)", (report.pk, report.lease, kind)
            )
        except psycopg.errors.IntegrityError as error:
            given = error.sqlstate or ""
        assert given == expected, f"the answer is {given!r}, not {expected!r}"

    @rule(worker=one_worker(), alone=st.booleans(), data=st.data())
    def lose_worker(self, worker: int, alone: bool, data: st.DataObject) -> None:
        """Let the process of a worker die, alone or together with others. Another one takes its place."""
        held = [pk for pk in self.model.of("running") if self.model.jobs[pk].worker == worker]
        self.bury(worker, data.draw(st.lists(st.sampled_from(held), unique=True)) if held else [], alone)
        self.register()

    @precondition(lambda self: self.model.of("running"))
    @rule(kinds=outcomes(), in_python=st.booleans(), data=st.data())
    def come_back(self, kinds: list[str], in_python: bool, data: st.DataObject) -> None:
        """Take a worker for dead whose process is only stopped. Then it reports the jobs that others have."""
        owners = {self.model.jobs[pk].worker for pk in self.model.of("running")}
        worker = data.draw(st.sampled_from([worker for worker in self.workers if worker in owners]))
        held = {pk: job.lease or 0 for pk, job in self.model.jobs.items() if job.worker == worker}
        self.bury(worker, [], False)
        other = self.register()
        if data.draw(st.booleans()):
            self.take(other, 4, in_python=in_python)
        self.tell([
            Report(pk, lease, kind) for (pk, lease), kind in zip(held.items(), kinds, strict=False)
        ])  # fmt: skip

    # People.

    @precondition(lambda self: self.model.jobs)
    @rule(what=st.sampled_from(["cancel", "retry", "edit"]), pks=some(), priority=st.sampled_from(PRIORITIES))
    def ask_for(self, what: str, pks: list[int], priority: int) -> None:
        """Cancel, retry or edit jobs."""
        if what == "cancel":
            changed, expected = cancel(self.connection, pks), self.model.cancel(pks)
        elif what == "retry":
            blocked = (
                "SELECT id FROM pgqueue_job_live WHERE status = 'blocked'"  # a retry leaves them in line
            )
            in_line = {row[0] for row in self.connection.execute(blocked).fetchall()}
            changed = retry(self.connection, pks)
            expected = self.model.retry(pk for pk in pks if pk not in in_line)
        else:
            changed = edit(self.connection, pks, priority=priority)
            expected = self.model.edit(pks, priority)
        assert changed == expected, f"{changed} rows were changed, not {expected}"

    # Time.

    @precondition(lambda self: self.model.may_pass_seconds())
    @rule(worker=one_worker(), claims=st.booleans())
    def pass_seconds(self, worker: int, claims: bool) -> None:
        """Let the time come for which jobs wait. Those that expire are found by a claim."""
        self.shift("pgqueue_job_live", "2000 s", "run_after", "expires_at", "enqueued_at")
        self.model.pass_seconds()
        if claims:
            self.take(worker, 2, in_python=False)

    @precondition(lambda self: self.model.of("done", "failed", "cancelled"))
    @rule(days=st.sampled_from([0, 1, 8, 40]), turns=st.sampled_from([1, 9]))
    def pass_days(self, days: int, turns: int) -> None:
        """Let days pass for the finished jobs, and more or fewer for the ring, since clocks jump."""
        self.shift("pgqueue_job", f"{days} days", "finished_at")
        self.model.pass_days(days)
        for _ in range(turns):
            self.shift("pgqueue_ring", "2 days", "since")
            for _ in range(3):  # empty a shelf, move to it, and look at the next one
                rotate(self.connection)
        value(self.connection, "SELECT _pgqueue_sweep(1000)")
        forget_dropped(self.connection, self.model)

    @invariant()
    def everything_is_as_expected(self) -> None:
        """Compare each row with the model."""
        check(self.connection, self.model, self.workers)


def live(connection: Connection, *, lives: int, calls: int, number: int | None = None) -> None:
    """Let some jobs live, and raise an error if they do not as the model says.

    Without a number, the calls are always the same. With one, it is their seed.
    """
    machine = type("LifeOfJobs", (LifeOfJobs,), {"connection": connection})
    run_state_machine_as_test(
        machine if number is None else seed(number)(machine),
        settings=settings(
            max_examples=lives, stateful_step_count=calls, deadline=None, database=None,
            derandomize=number is None, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def fuzz(first: int, seconds: float) -> bool:
    """Fuzz the default database, whose tables are empty. Return whether all is right, and print the rest."""
    end = time.monotonic() + seconds
    with open_raw(options="-c statement_timeout=20s") as connection:
        for number in count(first):
            try:
                live(connection, lives=100, calls=60, number=number)
                problems = Calls(connection).make(seed=number, internal=10, public=100)
                for table in ("edge", "job", "worker"):
                    connection.execute(f"DELETE FROM pgqueue_{table}")
                assert not problems, "\n".join(problems)
            except Exception:
                traceback.print_exc()
                print(f"Again: dev.py chaos --fuzz --minutes 0 --seed {number}", flush=True)
                return False
            if time.monotonic() > end:
                print(f"{number - first + 1} rounds, and nothing was wrong (--seed {first}).")
                break
    return True
