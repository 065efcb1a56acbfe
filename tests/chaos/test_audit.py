"""The audit finds what is wrong: a balanced ledger, then one change of it or of the tables for each rule."""

from __future__ import annotations

import os
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
    FOLDER,
    IN_DOUBT,
    INTEND,
    ROLLED_BACK,
    Accounts,
    Fault,
    Ledger,
    Run,
    Transaction,
    longest_gap,
    losses,
    read,
)
from .harness.load import Load
from .harness.scenario import recoveries
from .scenarios.processes import Interval, crowd

Change = Callable[[Ledger], object]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A balanced ledger of five jobs, the last of which was rolled back. All have run in this process."""
    ledger = Ledger(tmp_path)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    load = Load(ledger, Random(1), rate=1.0, backlog=1)
    kinds = [tasks.sync_effect, tasks.async_effect, tasks.atomic_effect, tasks.fails_once]
    load.transact([0, 1, 2, 3], [task.bind(number, 0.0) for number, task in enumerate(kinds)])
    load.transact([4], [tasks.atomic_effect.bind(4, 0.0)], is_rolled_back=True)
    run_due()
    return ledger


def test_a_balanced_ledger(ledger: Ledger) -> None:
    accounts = read(ledger.folder)
    audit = Audit(accounts)
    assert (audit.problems, audit.duplicates, len(accounts.runs)) == ([], [], 5)
    assert abandoned() == left_behind(accounts)[:-1] == []  # the process that has run the jobs is this one
    with (ledger.folder / "1.jsonl").open("w") as file:
        file.write('{"word": "fau')
    assert read(ledger.folder) == accounts, "half a record is not read"


def intend(outcome: str, *numbers: int) -> Change:
    """Return a change that writes a transaction with these numbers."""

    def change(ledger: Ledger) -> None:
        ledger.write(INTEND, transaction=9, numbers=list(numbers), expects="done")
        ledger.write(outcome, transaction=9)

    return change


HERE = frozenset({os.getpid()})
EVER = (0.0, 1e9)


def again(
    fault: Fault | None = None, *, number: int = 0, attempt: int = 1, error: str = "", times: int = 1,
    crashes: int = 0, **more: Any,
) -> Change:  # fmt: skip
    """Return a change that writes earlier runs of a number, cut off or with an error, and a fault."""

    def change(ledger: Ledger) -> None:
        claimed = Job.objects.get(args__0=0).last_attempted_at
        assert claimed
        job = Job.objects.filter(args__0=number).values_list("pk", flat=True).first() or 4_000_000
        execute(f"UPDATE pgqueue_job SET crash_count = {crashes} WHERE id = {job}")
        for lease in range(times):
            run = {"lease": lease, "job": job, "pid": os.getpid()}
            ledger.write(
                BEGIN, **run, number=number, attempt=attempt, worker=1, parent=1,
                claimed=claimed.timestamp() - 60 + lease,
            )  # fmt: skip
            if error:
                ledger.write(END, **run, how="raised", error=error)
        if fault:
            ledger.write_fault(fault)

    return change


def execute(statement: str) -> None:
    fetch("SET session_replication_role = replica")  # no triggers
    fetch(statement)
    fetch("SET session_replication_role = origin")


def sql(statement: str) -> Change:
    return lambda ledger: execute(f"{statement} args ->> 0 = '0'")


def effect(number: int) -> Change:
    return lambda ledger: Entry.objects.create(key=tasks.ATOMIC, note=str(number))


FAULT, OF_ALL = Fault("test", *EVER, HERE), Fault("test", *EVER)
UNEXPLAINED, COSTLY = "ran again for no reason", "took an attempt"
CASES: dict[str, tuple[Change, str]] = {
    "a committed job is lost": (sql("DELETE FROM pgqueue_job WHERE"), "are lost or double"),
    "a job is not over": (sql("UPDATE pgqueue_job SET status = 'failed' WHERE"), "and should be done"),
    "a job that was rolled back is there": (intend(ROLLED_BACK, 0), "rolled back are there"),
    "a job that was rolled back has run": (again(number=4), "that are not there have run"),
    "half of a transaction is there": (intend(IN_DOUBT, 0, 900), "has left only"),
    "nobody has enqueued it": (lambda ledger: enqueue(tasks.sync_effect, 77, 0.0), "numbers [77]"),
    "a lost lease has reported": (sql("UPDATE pgqueue_job SET lease = 5 WHERE"), "done with the lease 5"),
    "a lost lease has reported before the last run ended": (
        sql("UPDATE pgqueue_job SET finished_at = finished_at - interval '1 second' WHERE"),
        "was done before its last run ended",
    ),
    "an attempt too much": (sql("UPDATE pgqueue_job SET attempts = 2 WHERE"), "has 2 attempts"),
    "it ran again": (again(), UNEXPLAINED),
    "the fault was to have no effect": (again(Fault("test", *EVER, HERE, explains=False)), UNEXPLAINED),
    "the fault hit another process": (again(Fault("test", *EVER, frozenset({10**6}))), UNEXPLAINED),
    "the fault came later": (again(Fault("test", 1e9, 1e9, HERE)), UNEXPLAINED),
    "a fault took an attempt": (again(FAULT, attempt=0), COSTLY),
    "a broken connection took one": (again(FAULT, attempt=0, error="OperationalError"), COSTLY),
    "it snoozed": (again(error="Snooze"), ""),
    "it waited": (again(error="Suspended"), ""),
    "its snooze took an attempt": (again(error="Snooze", attempt=0), UNEXPLAINED),
    "a failure took none": (again(error="KeyError"), UNEXPLAINED),
    "its transaction was lost too often": (again(FAULT, number=2, attempt=0, times=6), ""),
    "not too often": (again(FAULT, number=2, attempt=0, times=5), COSTLY),
    "it has none": (again(FAULT, attempt=0, times=6), COSTLY),
    "it is isolated, and all lost their connections": (again(OF_ALL, number=2, attempt=0, crashes=1), ""),
    "it has not crashed": (again(OF_ALL, number=2, attempt=0), COSTLY),
    "it is not atomic": (again(OF_ALL, attempt=0, crashes=1), COSTLY),
    "only its own was lost": (again(FAULT, number=2, attempt=0, crashes=1), COSTLY),
    "two atomic effects": (effect(2), "effects of number 2: +1"),
    "no atomic effect": (
        lambda ledger: Entry.objects.filter(key=tasks.ATOMIC).delete(),
        "effects of number 2: -1",
    ),
    "an atomic effect that was rolled back": (effect(4), "effects of number 4: +1"),
}


@pytest.mark.parametrize("what", CASES)
def test_what_is_wrong_is_found(ledger: Ledger, what: str) -> None:
    change, sentence = CASES[what]
    change(ledger)
    problems = Audit(read(ledger.folder)).problems
    found = [problem for problem in problems if "the first run of a job was attempt 0" not in problem]
    assert any(sentence in problem for problem in found) if sentence else not found, found


def test_a_run_that_a_fault_explains_is_a_duplicate(ledger: Ledger) -> None:
    again(FAULT)(ledger)
    audit = Audit(read(ledger.folder))
    assert (audit.problems, [kind for _, _, kind in audit.duplicates]) == ([], ["test"])
    assert recoveries(audit.accounts).keys() == {"test"}


def test_a_job_without_an_owner_is_found(ledger: Ledger) -> None:
    job = enqueue(tasks.sync_effect, 77, 0.0)
    execute(f"UPDATE pgqueue_job SET status = 'running', worker = 12, lease = 3 WHERE id = {job.pk}")
    assert abandoned() == [f"job {job.pk} is running without a live owner (process None)"]
    assert any("a live job was left behind" in problem for problem in left_behind(read(ledger.folder)))


def test_overlaps_are_found() -> None:
    first, second, third = Interval(0, 2), Interval(1, 3), Interval(2, 4)
    assert crowd([third, first, second]) == [first, second]
    assert (crowd([first, third]), crowd([])) == ([first], [])


def test_what_a_failover_has_cost() -> None:
    def run(number: int, how: str = "done") -> Run:
        return Run(0.0, number, number, 1, 1, 1, 1, 1, 0.0, ended=1.0, how=how)

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
    assert [*losses(accounts, statuses, {1, 2, 5}, [1, 1, 5]).values()] == [4, 1, 1, 2, 1, 1, 1, 2, 1]
    assert longest_gap([1.0, 12.0, 13.0, 30.0], 10.0, 20.0) == 7.0
    assert longest_gap([], 10.0, 20.0) == 10.0
