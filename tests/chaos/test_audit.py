"""The audit finds what is wrong: a balanced ledger, then one change of it or of the tables for each rule."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.app import ledger_tasks as tasks
from tests.app.models import Entry
from tests.support.jobs import fetch
from tests.support.workers import run_due

from .harness.audit import Audit, abandoned, left_behind
from .harness.ledger import (
    BEGIN,
    COMMITTED,
    END,
    FAULT,
    FOLDER,
    IN_DOUBT,
    INTEND,
    ROLLED_BACK,
    Accounts,
    Ledger,
    Run,
    Tally,
    Transaction,
    longest_gap,
    read,
)
from .harness.load import Load
from .harness.scenario import recoveries
from .scenarios.processes import Interval, at_once

Change = Callable[[Ledger], object]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A balanced ledger of five jobs, the last of which was rolled back. All have run in this process."""
    ledger = Ledger(tmp_path)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    load = Load(ledger, Random(1), rate=1.0, backlog=1)
    calls = [
        tasks.sync_effect.bind(0, 0.0),
        tasks.async_effect.bind(1, 0.0),
        tasks.atomic_effect.bind(2, 0.0),
        tasks.fails_once.bind(3, 0.0),
    ]
    load.transact([0, 1, 2, 3], calls)
    load.transact([4], [tasks.atomic_effect.bind(4, 0.0)], is_rolled_back=True)
    run_due()
    return ledger


def problems(ledger: Ledger) -> list[str]:
    return Audit(read(ledger.folder)).problems


def execute(statement: str) -> None:
    fetch("SET session_replication_role = replica")  # no triggers
    fetch(statement)
    fetch("SET session_replication_role = origin")


def run_again(ledger: Ledger, *, before: float = 60.0, **changes: Any) -> None:
    """Write an earlier run of number 0, which was cut off."""
    job = Job.objects.get(args__0=0)
    assert job.last_attempted_at is not None
    run = {
        "lease": 1, "job": job.pk, "pid": os.getpid(), "number": 0, "attempt": 1, "worker": 1, "parent": 1,
        "claimed": job.last_attempted_at.timestamp() - before,
    }  # fmt: skip
    ledger.write(BEGIN, **{**run, **changes})


def fault(ledger: Ledger, **changes: Any) -> None:
    now = time.monotonic()
    values = {
        "kind": "test", "before": now - 100, "after": now, "pids": [os.getpid()], "is_supervisor": False,
        "explains": True,
    }  # fmt: skip
    ledger.write(FAULT, **{**values, **changes})


def test_a_balanced_ledger(ledger: Ledger) -> None:
    accounts = read(ledger.folder)
    audit = Audit(accounts)
    assert (audit.problems, audit.duplicates, len(accounts.runs)) == ([], [], 5)
    assert abandoned() == left_behind(accounts)[:-1] == []  # the process that has run the jobs is this one


def intend(outcome: str, *numbers: int) -> Change:
    """Return a change that writes a transaction with these numbers."""

    def change(ledger: Ledger) -> None:
        ledger.write(INTEND, transaction=9, numbers=list(numbers), expects="done")
        ledger.write(outcome, transaction=9)

    return change


def again(*, attempt: int = 1, number: int = 0, **of_fault: Any) -> Change:
    """Return a change that writes an earlier run, and, if its values are given, a fault."""

    def change(ledger: Ledger) -> None:
        run_again(ledger, attempt=attempt, **({"number": number, "job": 4_000_000} if number else {}))
        if of_fault:
            fault(ledger, **of_fault)

    return change


def sql(statement: str) -> Change:
    return lambda ledger: execute(f"{statement} args ->> 0 = '0'")


def effect(number: int) -> Change:
    return lambda ledger: Entry.objects.create(key=tasks.ATOMIC, note=str(number))


TAMPER: dict[str, tuple[Change, str]] = {
    "a committed job is lost": (sql("DELETE FROM pgqueue_job WHERE"), "are lost or double"),
    "a job is not over": (
        sql("UPDATE pgqueue_job SET status = 'failed' WHERE"),
        "is failed and should be done",
    ),
    "a job that was rolled back is there": (intend(ROLLED_BACK, 0), "rolled back are there"),
    "a job that was rolled back has run": (again(number=4), "that are not there have run"),
    "half of a transaction is there": (intend(IN_DOUBT, 0, 900), "has left only"),
    "nobody has enqueued it": (
        lambda ledger: enqueue(tasks.sync_effect, 77, 0.0),
        "nobody has enqueued the numbers [77]",
    ),
    "a lost lease has reported": (sql("UPDATE pgqueue_job SET lease = 5 WHERE"), "is done with the lease 5"),
    "a lost lease has reported before the last run ended": (
        sql("UPDATE pgqueue_job SET finished_at = finished_at - interval '1 second' WHERE"),
        "was done before its last run ended",
    ),
    "an attempt too much": (sql("UPDATE pgqueue_job SET attempts = 2 WHERE"), "has 2 attempts"),
    "it ran again": (again(), "ran again for no reason"),
    "the fault was to have no effect": (again(explains=False), "ran again for no reason"),
    "the fault hit another process": (again(pids=[1_000_000]), "ran again for no reason"),
    "the fault came later": (
        again(before=time.monotonic() + 9_000, after=time.monotonic() + 9_001),
        "ran again for no reason",
    ),
    "a fault took an attempt": (again(attempt=0, kind="test"), "took an attempt"),
    "two atomic effects": (effect(2), "number 2 is there 2 times"),
    "no atomic effect": (
        lambda ledger: Entry.objects.filter(key=tasks.ATOMIC).delete(),
        "number 2 is there 0 times",
    ),
    "an atomic effect that was rolled back": (effect(4), "number 4 is there 1 times"),
}


@pytest.mark.parametrize("what", TAMPER)
def test_what_is_wrong_is_found(ledger: Ledger, what: str) -> None:
    tamper, sentence = TAMPER[what]
    tamper(ledger)
    found = problems(ledger)
    assert any(sentence in problem for problem in found), found


def test_a_run_that_a_fault_explains_is_a_duplicate(ledger: Ledger) -> None:
    run_again(ledger)
    fault(ledger)
    audit = Audit(read(ledger.folder))
    assert audit.problems == []
    assert [kind for _, _, kind in audit.duplicates] == ["test"]
    assert recoveries(read(ledger.folder)).keys() == {"test"}


@pytest.mark.parametrize(
    ("error", "attempt"), [("Snooze", 1), ("Suspended", 1), ("Snooze", 0), ("KeyError", 1)]
)
def test_a_job_may_ask_to_run_again_and_spends_no_attempt(ledger: Ledger, error: str, attempt: int) -> None:
    run_again(ledger, attempt=attempt)
    job = Job.objects.get(args__0=0)
    ledger.write(END, lease=1, job=job.pk, pid=os.getpid(), how="raised", error=error)
    may = error != "KeyError" and attempt == 1
    assert (problems(ledger) == []) is may


def test_a_broken_connection_takes_no_attempt(ledger: Ledger) -> None:
    run_again(ledger, attempt=0)
    job = Job.objects.get(args__0=0)
    ledger.write(END, lease=1, job=job.pk, pid=os.getpid(), how="raised", error="OperationalError")
    fault(ledger)
    assert any("a fault (test) took an attempt" in problem for problem in problems(ledger))


@pytest.mark.parametrize(("number", "before"), [(2, 5), (2, 4), (0, 5)])
def test_an_atomic_job_that_has_lost_its_transaction_too_often_loses_an_attempt(
    ledger: Ledger, number: int, before: int
) -> None:
    job = Job.objects.get(args__0=number).pk
    for lost in range(before + 1):
        run_again(ledger, attempt=0, number=number, job=job, lease=lost, before=60.0 - lost)
    fault(ledger)
    took = [problem for problem in problems(ledger) if "took an attempt" in problem]
    assert bool(took) == ((number, before) != (2, 5))


@pytest.mark.parametrize(
    ("number", "crashes", "hits"), [(2, 1, "all"), (2, 0, "all"), (0, 1, "all"), (2, 1, "one")]
)
def test_an_atomic_job_that_has_crashed_before_loses_an_attempt_with_its_connection(
    ledger: Ledger, number: int, crashes: int, hits: str
) -> None:
    job = Job.objects.get(args__0=number).pk
    execute(f"UPDATE pgqueue_job SET crash_count = {crashes} WHERE id = {job}")
    run_again(ledger, attempt=0, number=number, job=job)
    fault(ledger, pids=None if hits == "all" else [os.getpid()])
    took = [problem for problem in problems(ledger) if "took an attempt" in problem]
    assert bool(took) == ((number, crashes, hits) != (2, 1, "all"))


def test_a_job_without_an_owner_is_found(ledger: Ledger) -> None:
    job = enqueue(tasks.sync_effect, 77, 0.0)
    execute(f"UPDATE pgqueue_job SET status = 'running', worker = 12, lease = 3 WHERE id = {job.pk}")
    assert abandoned() == [f"job {job.pk} is running without a live owner (process None)"]
    assert any("a live job was left behind" in problem for problem in left_behind(read(ledger.folder)))


def test_half_a_record_is_not_read(ledger: Ledger) -> None:
    before = read(ledger.folder)
    with (ledger.folder / "1.jsonl").open("w") as file:
        file.write('{"word": "fau')
    assert read(ledger.folder) == before
    assert {END, COMMITTED} <= {line.split('"')[3] for line in _lines(ledger)}


def _lines(ledger: Ledger) -> list[str]:
    return (ledger.folder / f"{os.getpid()}.jsonl").read_text().splitlines()


def test_overlaps_are_counted() -> None:
    assert at_once([Interval(0, 2), Interval(1, 3), Interval(2, 4)]) == 2
    assert at_once([Interval(0, 2), Interval(2, 4)]) == 1
    assert at_once([]) == 0


# --- The arithmetic of `python3 dev.py failover`


def run(number: int, how: str = "done") -> Run:
    return Run(0.0, number, number, 1, 1, 1, 1, 1, 0.0, ended=1.0, how=how)


def test_counts() -> None:
    accounts = Accounts(
        [
            Transaction([1, 2, 3, 4], "done", COMMITTED),
            Transaction([5, 6], "done", IN_DOUBT),
            Transaction([7], "done", ROLLED_BACK),
        ],
        [run(1), run(2), run(2), run(3, "raised"), run(3), run(4), run(5)],
        [],
    )
    statuses = {1: "done", 2: "done", 3: "done", 5: "running"}
    assert Tally.of(accounts, statuses, {1, 2, 5}, [1, 1, 5]) == Tally(
        confirmed=4, lost=1, in_doubt=2, in_doubt_there=1, ran_although_lost=1, ran_again=1,
        effects_missing=1, effects_repeated=2, unfinished=1,
    )  # fmt: skip


def test_a_gap_at_the_ends_counts() -> None:
    assert longest_gap([1.0, 12.0, 13.0, 30.0], 10.0, 20.0) == 7.0
    assert longest_gap([], 10.0, 20.0) == 10.0
