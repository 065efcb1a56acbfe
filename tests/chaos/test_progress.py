"""Progress in the processes of a real worker, and in that of an isolated job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job, JobProgress
from tests.app import progress_tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command
from tests.support.workers import fresh, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_progress_and_step_of_a_job_and_of_an_isolated_one(start: Callable[..., Command]) -> None:
    here, isolated = [enqueue(progress_tasks.waits_for_entry, "go") for _ in range(2)]
    Job.objects.filter(pk=isolated.pk).update(crash_count=1)
    start("--threads", "2", BACKOFF_BASE=0)
    for job, note in [(here, "here"), (isolated, "isolated")]:
        until(lambda job=job: fresh(job).progress is not None, seconds=SLOW)  # type: ignore[misc]
        first = fresh(job).progress
        assert first is not None
        assert (first.note, first.total, fresh(job).current_step) == (note, None, "prepare")
        until(lambda job=job, first=first: fresh(job).progress > first, seconds=SLOW)  # type: ignore[misc]
    Entry.objects.create(key="go")
    for job in (here, isolated):
        until(lambda job=job: fresh(job).is_finished, seconds=SLOW)  # type: ignore[misc]
        failed = fresh(job)
        assert (failed.status, failed.current_step) == ("failed", "fail")
        assert {error["step"] for error in failed.errors} == {"fail"}
        assert failed.errors[0]["progress"]["done"] > 1
    assert not JobProgress.objects.exists()
