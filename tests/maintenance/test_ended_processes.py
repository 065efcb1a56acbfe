"""Which of the processes that end under one supervisor have ended alone, so that their jobs count a crash."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.maintenance import recovery
from django_pgqueue.maintenance.recovery import TOGETHER, EndedProcess, EndedProcesses
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.session import Session, connect
from tests.app.tasks import noop
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.waiting import until
from tests.support.workers import fresh

NOW = 1_000.0


def end(worker: int, after: float = 0.0, *, started: float = NOW - 100, **more: Any) -> EndedProcess:
    """A process that has ended by itself, with its one job, of the same number."""
    return EndedProcess(worker, [worker], None, "it ended", started, NOW + after, **more)


def alone(*ends: EndedProcess) -> list[bool]:
    ended = EndedProcesses()
    for each in ends:
        ended.add(each)
    return [each.alone for each in ends]


@pytest.mark.promise("alone-counts-a-crash")
def test_a_process_that_ends_has_ended_alone() -> None:
    assert alone(end(1)) == [True]


@pytest.mark.parametrize(("later", "expected"), [(0.0, False), (TOGETHER, False), (TOGETHER + 0.1, True)])
@pytest.mark.promise("together-counts-none")
def test_two_that_end_within_a_short_time_have_not(later: float, expected: bool) -> None:
    assert alone(end(1), end(2, later)) == [expected, expected]


def test_what_was_ended_by_its_supervisor_says_nothing_about_the_others() -> None:
    overdue, stopped = end(1), end(2)
    overdue.to_blame, stopped.to_blame = [1], []
    assert alone(overdue, end(3), stopped) == [True, True, True]


def test_the_process_before_it_in_its_place_is_not_another_one() -> None:
    """A worker with one process, which ends again just after it was replaced."""
    assert alone(end(1), end(2, 0.5, started=NOW + 0.1)) == [True, True]


@pytest.fixture
def session() -> Iterator[Session]:
    session = connect("default")
    yield session
    session.close()


def give_back(ended: EndedProcesses, session: Session) -> None:
    def all_gone() -> bool:
        ended.give_back(session)
        return not ended

    until(all_gone)


@pytest.mark.django_db(transaction=True)
def test_race_a_process_whose_jobs_have_gone_back_is_remembered(session: Session) -> None:
    """The first of several is counted before the others are known to have ended."""
    jobs = [JobFactory.create(running=True, worker=worker) for worker in (1, 2)]
    ended = EndedProcesses()
    for job, after in zip(jobs, (0.0, 0.5), strict=True):
        ended.add(EndedProcess(job.worker or 0, [job.pk], None, "it ended", 0.0, NOW + after))
        give_back(ended, session)
    assert [fresh(job).crash_count for job in jobs] == [1, 0]
    assert fresh(jobs[1]).waiting_reason == "it ended, and other processes ended at the same time"


@pytest.mark.django_db(transaction=True)
def test_race_a_process_whose_jobs_have_not_gone_back_learns_of_another(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [JobFactory.create(running=True, worker=worker) for worker in (1, 2)]
    ended = EndedProcesses()
    ended.add(EndedProcess(1, [jobs[0].pk], None, "it ended", 0.0, NOW))
    with monkeypatch.context() as server_is_busy:
        server_is_busy.setattr(recovery, "recover", lambda session, ended: None)
        ended.give_back(session)
    ended.add(EndedProcess(2, [jobs[1].pk], None, "it ended", 0.0, NOW + 0.5))
    give_back(ended, session)
    assert [fresh(job).crash_count for job in jobs] == [0, 0]


@pytest.mark.django_db(transaction=True)
def test_two_jobs_that_take_their_processes_down_together_again_and_again_both_fail(session: Session) -> None:
    """And their innocent neighbours are only counted until the two run isolated."""
    killers = [enqueue(noop), enqueue(noop)]
    rounds = 0
    while any(fresh(job).status == "pending" for job in killers):
        rounds += 1
        assert rounds < 10, "they go round in circles"
        ended, now = EndedProcesses(), monotonic()
        for worker, job in enumerate(killers, 1):
            WorkerFactory.create(id=worker)
            Job.objects.filter(pk=job.pk).update(
                status="running", attempts=1, worker=worker, lease=10 * rounds + worker
            )
            ended.add(EndedProcess(worker, [job.pk], None, "it ended", now - 5, now))
        give_back(ended, session)
        assert not Worker.objects.exists()
    assert [(fresh(job).status, fresh(job).crash_count) for job in killers] == [("failed", 3)] * 2
    assert rounds == 4
