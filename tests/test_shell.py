"""The names for ``manage.py shell``, used as a developer types them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.app import debugged_tasks as tasks, secret_tasks
from tests.support.factories import JobFactory
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def bodies() -> Iterator[dict[str, Any]]:
    yield tasks.BODIES
    tasks.BODIES.clear()


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a line in the shell, and returns what it prints."""

    def do(line: str) -> str:
        capsys.readouterr()
        call_command(
            "shell", command=f"from django_pgqueue.shell import *\n{line}", verbosity=0, no_imports=True
        )
        return capsys.readouterr().out.strip()

    return do


def fail() -> None:
    raise ValueError("no such order")


@pytest.mark.promise("redaction-everywhere")
def test_what_the_shell_and_the_command_print_is_redacted(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(secret_tasks.sign_in, "nobody", "hunter2", api_key="k-1")
    run_due()
    assert "sign_in(*['nobody', '[redacted]'], **{'api_key': '[redacted]'})" in shell("failure()")
    with override_settings(PGQUEUE={"REDACT": [r"re:\d{4}-\d{4}"]}):
        assert "card [redacted]-[redacted] of nobody" in shell("failure()")
    job = enqueue(secret_tasks.sign_in, "ann", "hunter2")
    call_command("pgqueue", "run-here", str(job.pk))
    text = capsys.readouterr().out
    assert 'Result: {"user": "ann", "accessToken": "[redacted]"}' in text
    assert fresh(job).result == {"user": "ann", "accessToken": "hunter2-token"}


def test_jobs_and_failures(shell: Any, bodies: dict[str, Any]) -> None:
    assert shell("failure()") == "No job has failed."
    bodies.update(good=lambda: 42, bad=fail)
    good, bad = enqueue(tasks.run_body, "good"), enqueue(tasks.short.using(queue_name="mail"), "bad")
    run_due()
    assert shell("print([job.pk for job in jobs()])") == f"[{bad.pk}, {good.pk}]"
    assert shell("print(jobs('run_body').get().result)") == "42"
    assert shell("print(jobs(status='retry').get().pk, jobs(queue='mail').get().pk)") == f"{bad.pk} {bad.pk}"
    text = shell("failure()")
    assert text.startswith(
        f"Job {bad.pk}: tests.app.debugged_tasks.short(*['bad'], **{{}}), attempt 1, retry\n"
    )
    assert text.endswith("ValueError: no such order")
    assert shell(f"failure({good.pk})") == f"Job {good.pk} has no error."
    with pytest.raises(ValueError, match="'gone' is not a valid"):
        shell("jobs(status='gone')")


def test_run_and_retry(shell: Any, bodies: dict[str, Any]) -> None:
    bodies.update(good=lambda: 42, bad=fail)
    good, bad = enqueue(tasks.run_body, "good"), enqueue(tasks.run_body, "bad")
    assert shell(f"print(run_here({good.pk}))") == "42"
    with pytest.raises(ValueError, match="no such order"):
        shell(f"run_here(Job.objects.get(pk={bad.pk}))")
    bodies["bad"] = lambda: "mended"
    assert shell(f"retry({bad.pk}); print(run_here({bad.pk}))") == "mended"


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_ids_of_another_database(shell: Any, bodies: dict[str, Any]) -> None:
    bodies.update(good=lambda: 42)
    job = enqueue(tasks.run_body.using(database="other"), "good")
    assert shell(f"print(run_here('other:{job.pk}'))") == "42"
    assert shell(f"why('other:{job.pk}')").partition("): ")[2].startswith("It was done at ")
    with pytest.raises(ValueError, match="'first' is not the id of a job"):
        shell("why('first')")
    with pytest.raises(Job.DoesNotExist, match=f"There is no job {job.pk} in the database 'default'"):
        shell(f"why({job.pk})")


def test_why(shell: Any, bodies: dict[str, Any]) -> None:
    job, later = enqueue(tasks.run_body, "good"), enqueue(tasks.later, "good")
    bodies.update(good=lambda: shell(f"why({job.pk})"), bad=fail)

    def asked(each: Any) -> str:
        said = shell(f"why({each.pk})")
        assert said.startswith(f"Job {each.pk} ({fresh(each).task_path}, {fresh(each).status}): ")
        return str(said.partition("): ")[2])

    assert asked(job) == (
        "No worker serves the queue 'default' in the database 'default'. "
        "Start a worker: manage.py runqueueworker --queues default"
    )
    assert asked(later).startswith("It is due in 23 h 59 min, at ")
    error = {"class": "builtins.KeyError", "message": "'x'", "step": "load"}
    failed = JobFactory.create(failed=True, errors=[error])
    assert asked(failed).endswith(f"KeyError: 'x' (in the step 'load'). To run it again: retry({failed.pk})")
    run_due()
    assert re.search(r"It runs: attempt 1, for \d+ s, on ", str(fresh(job).result))
    assert asked(job).startswith("It was done at ")
