"""The context of an enqueue is there when its job runs, wherever it runs, and gone when the next one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.utils import translation

from django_pgqueue import cancel, conf, encoding, enqueue, retry
from django_pgqueue.context import acting_as
from django_pgqueue.encoding import TOO_DEEP
from django_pgqueue.models import Job
from django_pgqueue.telemetry.tracing import CARRIER
from tests.app import context_tasks as tasks
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIED = {"language": "de", "tenant": [5], "user": 7, "trace": TRACEPARENT}
NOTHING = {"language": "en-us", "tenant": None, "user": None, "trace": None}


@pytest.fixture(autouse=True)
def _names(settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": ["language", "trace", "user", tasks.TENANT_PATH]}


@contextmanager
def request() -> Iterator[None]:
    """Code that has all that travels."""
    carrier, tenant = CARRIER.set({"traceparent": TRACEPARENT}), tasks.TENANT.set([5])
    try:
        with translation.override("de"), acting_as(7):
            yield
    finally:
        CARRIER.reset(carrier)
        tasks.TENANT.reset(tenant)


@pytest.mark.parametrize("task", [tasks.look, tasks.alook, tasks.look_in_a_thread, tasks.look_atomic])
@pytest.mark.promise("context-ends")
def test_it_travels_and_is_gone_afterwards(task: Any) -> None:
    before = enqueue(task)
    with request():
        job = enqueue(task)
    after = enqueue(task)
    run_due(threads=1)
    assert [fresh(each).result for each in (before, job, after)] == [NOTHING, CARRIED, NOTHING]


@pytest.mark.promise("context-everywhere")
def test_it_travels_into_the_process_of_an_isolated_job() -> None:
    with translation.override("de"):
        job = enqueue(tasks.look)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [job.pk])
    run_due()
    assert fresh(job).result == {**NOTHING, "language": "de"}


@pytest.mark.promise("context-passed-on")
def test_a_job_passes_it_on_to_the_jobs_that_it_enqueues() -> None:
    with request():
        job = enqueue(tasks.pass_on)
    run_due()
    assert fresh(fresh(job).result).result == CARRIED


def test_a_task_that_activates_a_language_does_not_affect_the_next_job() -> None:
    with request():
        enqueue(tasks.change_the_language)
    enqueue(tasks.change_the_language)
    job = enqueue(tasks.look)
    run_due(threads=1)
    assert fresh(job).result == NOTHING


def test_a_variable_that_is_no_longer_in_the_setting_is_left_out(settings: Any) -> None:
    with request():
        job = enqueue(tasks.look)
    settings.PGQUEUE = {}
    run_due()
    assert fresh(job).result == {**CARRIED, "tenant": None}


def test_a_language_without_a_catalog_of_its_own_travels() -> None:
    with translation.override("de-at"):
        job = enqueue(tasks.look)
    run_due()
    assert fresh(job).result == {**NOTHING, "language": "de-at"}


@pytest.mark.promise("context-stays")
def test_it_stays_with_the_job_through_its_life() -> None:
    with request():
        job = enqueue(tasks.look)
    stored = job.context
    cancel(job)
    assert fresh(job).context == stored
    retry(job)
    run_due()
    assert (fresh(job).context, fresh(job).status) == (stored, "done")
    retry(job)
    assert fresh(job).context == stored
    run_due()
    assert fresh(job).result == CARRIED
    assert Job.objects.filter(context__user=7).count() == 1


@pytest.mark.parametrize("task", [tasks.look, tasks.alook])
def test_a_context_that_python_cannot_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, task: Any
) -> None:
    """SQL can store it. How deep Python reads depends on its version."""
    monkeypatch.setattr(encoding, "load", lambda text: TOO_DEEP)
    with request():
        job = enqueue(task)
    run_due()
    result: Any = fresh(job).result
    assert (result["language"], result["tenant"]) == ("en-us", None)
    assert f"job {job.pk} runs without its context, which is nested too deeply" in caplog.text


@pytest.mark.parametrize("task", [tasks.look, tasks.alook])
def test_a_context_that_cannot_be_restored_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: Any, task: Any
) -> None:
    """The variable is not what the setting says. The job waits until that is mended."""
    settings.PGQUEUE = {"CONTEXT": [tasks.TENANT_PATH], "TIMEOUT": 60}
    with request():
        job = enqueue(task)
    monkeypatch.setattr(conf, "object_at", lambda setting, path: "no variable")
    producer = run_due()
    runner = producer._runner
    assert not runner.running
    assert not runner.timeouts._watched
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)
    assert "names 'tests.app.context_tasks.TENANT', which is of type str" in caplog.text
    monkeypatch.undo()
