"""``manage.py pgqueue why``."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.models import Job
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", "why", *arguments, stdout=out)
    return out.getvalue()


def test_the_reason_and_what_helps() -> None:
    job = JobFactory.create(queue_name="mail")
    assert run(str(job.pk)) == (
        f"Job {job.pk} (tests.app.tasks.add): No worker serves the queue 'mail' in the database 'default'.\n"
        "Start a worker: manage.py runqueueworker --queues mail\n"
    )
    said = json.loads(run(str(job.pk), "--json"))
    assert (said["job_id"], said["database"], said["code"]) == (job.pk, "default", "no_worker")
    assert said["facts"]["queue_name"] == "mail"
    assert said["text"].startswith("No worker")
    assert said["fix"].startswith("Start")


@pytest.mark.parametrize("arguments", [["other:{}"], ["{}", "--database", "other"]])
def test_another_database(arguments: list[str]) -> None:
    pk = Job.objects.using("other").create(task_path="a.b").pk
    assert "in the database 'other'" in run(*(each.format(pk) for each in arguments))


def test_no_such_job(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="There is no job with this id"):
        run("77")
    with pytest.raises(CommandError, match="'x' is not the id of a job"):
        run("x")
