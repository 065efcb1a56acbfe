"""The examples of workers in other languages: real processes with real jobs, one of which is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from django.db import connection
from django.test import override_settings

from django_pgqueue.maintenance.recovery import recover_dead
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.session import Session
from tests.support.jobs import sql
from tests.support.waiting import until

from .shop import EXAMPLES

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

FOLDER = EXAMPLES / "workers"
PYTHON = [sys.executable, str(FOLDER / "worker.py")]
BASH = ["bash", str(FOLDER / "worker.sh")]
has_psql = pytest.mark.skipif(
    not (shutil.which("psql") or os.environ.get("PGQUEUE_POSTGRES_BIN")) or not shutil.which("bash"),
    reason="bash or psql is missing",
)
WORKERS = [pytest.param(PYTHON, "media", id="python"), pytest.param(BASH, "shell", id="bash", marks=has_psql)]


def environment(**more: str) -> dict[str, str]:
    given = connection.settings_dict
    return {
        **os.environ, "PGHOST": given["HOST"], "PGPORT": str(given["PORT"] or 5432), "PGUSER": given["USER"],
        "PGPASSWORD": given["PASSWORD"], "PGDATABASE": given["NAME"],
        "PATH": os.pathsep.join(filter(None, [os.environ.get("PGQUEUE_POSTGRES_BIN"), os.environ["PATH"]])),
        **more,
    }  # fmt: skip


def add(task: str, argument: str, **options: str) -> Job:
    more = "".join(f", {name} => {value}" for name, value in options.items())
    query = f"SELECT pgqueue_enqueue(%s, %s, queue_name => %s{more})"
    return Job.objects.get(pk=sql(query, task, f"[{argument}]", task.partition(".")[0]))


def work(command: list[str]) -> str:
    """Run a worker until nothing is due."""
    done = subprocess.run(
        command, env=environment(BURST="1", BEAT="0.5"), check=False, text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert not Worker.objects.exists(), "it has not signed off"
    return done.stdout


@contextmanager
def working(command: list[str], **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker, and kill it at the end with all that it has started."""
    process = subprocess.Popen(command, env=environment(**more), start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("command", "queue"), WORKERS)
def test_jobs_are_done_or_retried_or_requeued(command: list[str], queue: str, tmp_path: Path) -> None:
    file = tmp_path / "it's a file"
    file.write_text("content")
    good, bad = ("8, 2", "1, 0") if queue == "media" else (f'"{file}"', f'"{tmp_path}/none"')
    task = {"media": "media.ratio", "shell": "shell.checksum"}[queue]
    done, tried, last = add(task, good), add(task, bad), add(task, bad, max_attempts="1")
    unknown = add(f"{queue}.unknown", "")
    assert work(command) == ""
    for job in (done, tried, last, unknown):
        job.refresh_from_db()
    assert done.status == "done"
    assert done.result == 4 if queue == "media" else str(done.result).startswith("ed7002b439e9ac845f22357d")
    assert (tried.status, tried.attempts, len(tried.errors)) == ("retry", 1, 1)
    assert tried.errors[0]["class"] == {"media": "ZeroDivisionError", "shell": "Exit"}[queue]
    assert (last.status, last.attempts, len(last.errors)) == ("failed", 1, 1)
    assert (unknown.status, unknown.attempts) == ("pending", 0)


@pytest.mark.parametrize(("command", "queue"), WORKERS)
@pytest.mark.promise("sql-recovery")
def test_the_job_of_a_killed_worker_runs_again_in_one_that_signs_off(
    command: list[str], queue: str, session: Session
) -> None:
    job = add(f"{queue}.wait", "600")
    with working(command, BEAT="0.5") as process:
        until(lambda: Job.objects.get(pk=job.pk).status == "running", what="a running job")
        with override_settings(PGQUEUE={"HEARTBEAT": 0.1, "LEASE": 2.0}):
            process.kill()
            process.wait()
            until(lambda: recover_dead(session) == 1, what="the recovery of the job")
    job.refresh_from_db()
    assert (job.status, job.attempts, job.waiting_reason) == ("pending", 0, "its worker was lost")
    sql("UPDATE pgqueue_job_live SET args = '[0]' WHERE id = %s", job.pk)
    with working(command, BEAT="0.5") as process:
        until(lambda: Job.objects.get(pk=job.pk).status == "done", what="the job is done")
        assert Job.objects.get(pk=job.pk).attempts == 1
        sql("SELECT pgqueue_drain_worker(id, false) FROM pgqueue_worker")
        until(lambda: not Worker.objects.exists(), what="the worker to sign off")
        assert process.wait(20) == 0


@pytest.mark.parametrize(("command", "queue"), WORKERS)
def test_a_worker_that_counts_as_dead_stops(command: list[str], queue: str) -> None:
    job = add(f"{queue}.wait", "600")
    with working(command, BEAT="0.5") as process:
        until(lambda: Job.objects.get(pk=job.pk).status == "running", what="a running job")
        Worker.objects.all().delete()
        assert process.wait(20) != 0
