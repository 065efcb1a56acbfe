"""Worker processes, and those of isolated jobs, have the settings of the class."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from django.db import connection, transaction

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import running_worker
from tests.support.commands import ROOT, SLOW, commands_in

from .tasks import where

pytestmark = [pytest.mark.wagtail, pytest.mark.django_db(transaction=True)]

MANAGE = Path(__file__).with_name("manage.py")


def enqueue_two() -> tuple[Job, Job]:
    """Enqueue a job, and one that runs in a process of its own."""
    with transaction.atomic(), connection.cursor() as cursor:
        job, alone = enqueue(where), enqueue(where)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [alone.pk])
    return job, alone


@pytest.mark.parametrize(("program", "arguments", "zone"), [
    (str(MANAGE), (), "UTC"),
    (str(MANAGE), ("--configuration=Prod",), "Europe/Paris"),
    ("-m configurations", (), "UTC"),
])  # fmt: skip
def test_a_worker(tmp_path: Path, program: str, arguments: tuple[str, ...], zone: str) -> None:
    env = {"DJANGO_SETTINGS_MODULE": "tests.wagtail.classes.settings", "PYTHONPATH": str(ROOT)}
    instead = f'shift 3; exec {sys.executable} {program} "$@"'  # of python -m django
    with commands_in(tmp_path) as start:
        command = start(*arguments, through=["sh", "-c", instead, "sh"], env=env)
        for job in enqueue_two():
            assert job.join(timeout=SLOW).result == zone
        command.logged("runs isolated in process")
        command.send(signal.SIGTERM)
        assert command.wait() == 0, command.log


def test_a_worker_that_the_test_kit_starts() -> None:
    with running_worker() as worker:
        assert worker.join(enqueue(where)).result == "UTC"
