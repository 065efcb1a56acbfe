"""Jobs whose process or worker is gone: their lines in the log, and which of them count a crash."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue.maintenance import recovery
from django_pgqueue.maintenance.recovery import TOGETHER, EndedProcess, EndedProcesses, recover, recover_dead
from django_pgqueue.maintenance.rounds import sweep
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.session import Session
from tests.support.factories import JobFactory, WorkerFactory, ago
from tests.support.waiting import until
from tests.support.workers import fresh

pytestmark = pytest.mark.usefixtures("settled_server")

TWICE = "The task must not run twice."
LIMIT = "Its process has died 3 times while it ran, which is the limit."


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue")


def running(**changes: Any) -> Job:
    job: Job = JobFactory.create(**{"running": True, "queue_name": "mail", **changes})
    return job


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "django_pgqueue.job"]


def counts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about all jobs of a recovery."""
    name = "django_pgqueue.maintenance.recovery"
    return [record.getMessage() for record in caplog.records if record.name == name]


def dead_worker(settings: Any, **changes: Any) -> None:
    """Worker 7, which has missed its heartbeats since the server was started."""
    settings.PGQUEUE = {"HEARTBEAT": 0.1}
    WorkerFactory.create(id=7, heartbeat_at=ago(seconds=0.3), **changes)


def ended(*begun: Job, worker: int = 7) -> EndedProcess:
    return EndedProcess(worker, [job.pk for job in begun], None, "its process ended", 0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "outcome", "level", "words", "why"),
    [
        ({"crash_count": 2}, "failed", "ERROR", "failed", f". {LIMIT}"),
        ({"on_lost": "fail"}, "failed", "ERROR", "failed", f". {TWICE}"),
        (
            {"on_lost": "fail", "cancel_requested_at": timezone.now()},
            "failed", "ERROR", "failed", f". {TWICE}",
        ),
        ({}, "crash", "WARNING", "lost its process; it runs again at once", " (crash 1 of at most 3)"),
        (
            {"cancel_requested_at": timezone.now()},
            "cancelled", "INFO", "cancelled", " (crash 1 of at most 3)",
        ),
    ],
    ids=["crash limit", "must not run twice", "fails before it is cancelled", "crash", "asked to cancel"],
)  # fmt: skip
def test_what_became_of_a_job_is_one_line(
    changes: dict[str, Any],
    outcome: str,
    level: str,
    words: str,
    why: str,
    session: Session,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = running(**changes, attempts=4, forgiven_attempts=2, max_attempts=6)
    recover(session, ended(job))
    (record,) = lines(caplog)
    assert record.levelname == level
    assert record.getMessage() == (
        f"job {job.pk} {job.task_path} {words} (queue mail, attempt 2 of 6): its process ended{why}"
    )
    left = fresh(job)
    # The function says what the row says.
    assert left.status == ("retry" if outcome == "crash" else outcome)
    assert (record.job_id, record.task_path, record.queue_name) == (job.pk, job.task_path, "mail")
    assert (record.attempt, record.max_attempts, record.outcome) == (2, 6, outcome)
    assert (record.waited, record.ran) == (None, None)
    assert getattr(record, "error_class", None) == (left.errors[-1]["class"] if left.errors else None)
    assert hasattr(record, "next_run") is (outcome == "crash")


def test_a_job_that_only_runs_again_has_no_line(
    session: Session, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It was held in advance, or it was lost with more than its process for the first time."""
    running()
    assert recover(session, ended()) == 1
    lost = running()
    dead_worker(settings, started_jobs=[lost.pk])
    assert recover_dead(session) == 1
    assert fresh(lost).lost_in_a_row == 1
    assert lines(caplog) == []
    assert counts(caplog) == ["found 1 dead worker, requeued 1 job"]


def test_the_other_ways_of_recovery_tell_as_well(
    session: Session, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    of_dead, stray = running(on_lost="fail"), running(worker=8, on_lost="fail", max_attempts=None)
    running(worker=8)
    dead_worker(settings)
    assert recover_dead(session) == 1
    assert sweep(session) == 2
    assert {record.levelname for record in lines(caplog)} == {"ERROR"}
    why = f": its worker was lost. {TWICE}"
    assert [record.getMessage() for record in lines(caplog)] == [
        f"job {of_dead.pk} {of_dead.task_path} failed (queue mail, attempt 1 of 5){why}",
        f"job {stray.pk} {stray.task_path} failed (queue mail, attempt 1){why}",
    ]
    # The jobs that failed are not counted among those that run again.
    assert counts(caplog) == [
        "found 1 dead worker, requeued 0 jobs",
        "requeued 1 job of workers that no longer exist",
    ]


def test_each_batch_tells_of_its_jobs(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches before the last one as well, whose answer is that there are more."""
    monkeypatch.setattr(recovery, "BATCH", 1)
    WorkerFactory.create(id=7)
    jobs = [running(crash_count=2), running(), running(on_lost="fail")]
    processes = EndedProcesses()
    processes.add(ended(*jobs))
    seen = []
    while processes:
        processes.give_back(session)
        seen.append(len(lines(caplog)))
    assert seen == [1, 2, 3]
    told = [(record.job_id, record.outcome) for record in lines(caplog)]
    ends = ("failed", "crash", "failed")
    assert told == [(job.pk, end) for job, end in zip(jobs, ends, strict=True)]


def test_lines_that_nobody_wants_are_not_made(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """With ``-v0`` only those of failed jobs are written. They count all the same."""
    caplog.set_level(logging.ERROR, "django_pgqueue.job")
    crashed, failed = running(), running(on_lost="fail")
    assert recover(session, ended(crashed, failed)) == 1
    assert [record.job_id for record in lines(caplog)] == [failed.pk]


# -- which processes have ended alone, so that their jobs count a crash

NOW = 1_000.0


def end(worker: int, after: float = 0.0, *, started: float = NOW - 100) -> EndedProcess:
    """A process that has ended by itself, with its one job, of the same number."""
    return EndedProcess(worker, [worker], None, "it ended", started, NOW + after)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param([end(1)], [True], id="one"),
        pytest.param([end(1), end(2)], [False] * 2, id="two at once"),
        pytest.param([end(1), end(2, TOGETHER)], [False] * 2, id="two within a short time"),
        pytest.param([end(1), end(2, TOGETHER + 0.1)], [True] * 2, id="two after a longer time"),
        pytest.param(
            [replace(end(1), to_blame=[1]), end(3), replace(end(2), to_blame=[])], [True] * 3,
            id="what was ended by its supervisor says nothing about the others",
        ),
        pytest.param(
            [end(1), end(2, 0.5, started=NOW + 0.1)], [True] * 2,
            id="one that has just replaced the process before it in its place",
        ),
    ],
)  # fmt: skip
@pytest.mark.promise("alone-counts-a-crash", case="one")
@pytest.mark.promise("together-counts-none", case="two at once")
def test_which_processes_have_ended_alone(ends: list[EndedProcess], expected: list[bool]) -> None:
    ended = EndedProcesses()
    for each in ends:
        ended.add(each)
    assert [each.alone for each in ends] == expected


def give_back(ended: EndedProcesses, session: Session) -> None:
    def all_gone() -> bool:
        ended.give_back(session)
        return not ended

    until(all_gone)


def test_race_a_process_whose_jobs_have_gone_back_is_remembered(session: Session) -> None:
    """The first of several is counted before the others are known to have ended."""
    jobs = [JobFactory.create(running=True, worker=worker) for worker in (1, 2)]
    ended = EndedProcesses()
    for job, after in zip(jobs, (0.0, 0.5), strict=True):
        ended.add(EndedProcess(job.worker or 0, [job.pk], None, "it ended", 0.0, NOW + after))
        give_back(ended, session)
    assert [fresh(job).crash_count for job in jobs] == [1, 0]
    assert fresh(jobs[1]).waiting_reason == "it ended, and other processes ended at the same time"


def test_race_a_process_whose_jobs_have_not_gone_back_learns_of_another(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [JobFactory.create(running=True, worker=worker) for worker in (1, 2)]
    for worker in (1, 2):
        WorkerFactory.create(id=worker)
    ended = EndedProcesses()
    ended.add(EndedProcess(1, [jobs[0].pk], None, "it ended", 0.0, NOW))
    with monkeypatch.context() as server_is_busy:
        server_is_busy.setattr(recovery, "recover", lambda session, ended: None)
        ended.give_back(session)
    ended.add(EndedProcess(2, [jobs[1].pk], None, "it ended", 0.0, NOW + 0.5))
    give_back(ended, session)
    assert [(fresh(job).crash_count, fresh(job).lost_in_a_row) for job in jobs] == [(0, 1)] * 2
    assert not Worker.objects.exists()
