"""The audit finds what is wrong: a balanced ledger, then one change of it or of the tables for each rule."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.app import ledger_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import run_due

from .harness.accounts import read
from .harness.audit import Audit, abandoned, left_behind
from .harness.ledger import BEGIN, FAULT, FOLDER, IN_DOUBT, INTEND, ROLLED_BACK, Ledger
from .harness.load import Load
from .harness.scenario import recoveries

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
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # no triggers
        cursor.execute(statement)
        cursor.execute("SET session_replication_role = origin")


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
    "a lost lease has reported": (
        sql("UPDATE pgqueue_job SET lease = 5 WHERE"),
        "is done with the lease 5",
    ),
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


def test_a_job_without_an_owner_is_found(ledger: Ledger) -> None:
    job = enqueue(tasks.sync_effect, 77, 0.0)
    execute(f"UPDATE pgqueue_job SET status = 'running', worker = 12, lease = 3 WHERE id = {job.pk}")
    assert abandoned() == [f"job {job.pk} is running without a live owner (process None)"]
    assert any("a live job was left behind" in problem for problem in left_behind(read(ledger.folder)))
