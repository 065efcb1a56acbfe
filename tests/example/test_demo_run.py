"""The whole demonstration as a command, with a real worker and a real server; and seed_demo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.models import FailureGroup, Job, JobBatch, Limit, Pause, Queue, Schedule, Worker
from django_pgqueue.monitoring.workers import Vital, vital, with_vitals
from django_pgqueue.postgres.session import connect
from example_project.demo.management.commands.seed_demo import Command
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.waiting import until

MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"
SECONDS = 180


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment with a separate database and folder."""
    given = os.environ["DATABASE_URL"]
    name = f"demo_{os.getpid()}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield {
            **{key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"},
            "DATABASE_URL": re.sub(r"/[^/]*$", f"/{name}", given),
            "EXAMPLE_VAR": str(tmp_path),
        }
        server.execute(f"DROP DATABASE {name}")  # fails if a process is left that uses it


def manage(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(MANAGE), *command],
        env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


FACTS = (
    r"Rolled back +100 documents and 100 jobs in [\d.]+ s; left: 0 and 0",
    r"Batch +\d+ has these jobs; job \d+ runs after all of them",
    r"Committed +100 documents and 100 jobs in",
    r"100 of 100 +[\d,]+ jobs/s +depth 0",
    r"Jobs +100 finished: \d+ done, \d+ failed",
    r"Complete +100 files: \d+ indexed, \d+ failed; none missing, none twice",
    r"Summed up +by job \d+, which waited for the batch",
    r"Waited +p50 .* p95 .* p99",
    r"Ran +p50 .* p95 .* p99",
    r"Queue's share +\d.* per job \(\d processes? w",
    r"its job continued with step \d+, (vectors \d+|publish), after \d+\.\d s\n",
    r"Failed +1 Gone",
    r"Failed +1 TooLarge",
    r"Failed +1 NotText",
    r"Second run +\d+ unchanged",
    r"Found +\d+ documents? in",
    r"Health +Healthy: \d workers, .* jobs/",
    r"User +demo\n +Password +\S{8,}\n",
)


def test_it_tells_the_whole_story_and_then_serves_until_ctrl_c(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--serve", "--files", "100"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C to stop everything" in line:
                    break
            tells_the_whole_story("".join(lines), environment)
            [address] = re.findall(r"Search +(http://\S+)", "".join(lines))
            with urllib.request.urlopen(f"{address}?q=python", timeout=SECONDS) as page:  # noqa: S310
                assert "<mark>" in page.read().decode()
            assert "stop it first" in manage(environment, "demo").stderr
            listed = manage(environment, "pgqueue", "schedules").stdout
            assert re.search(
                r"^count-documents +active .* code \(example_project\.demo\.tasks\)$", listed, re.M
            )
            keeps_busy(environment)
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.terminate()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=SECONDS)  # noqa: S310
    with psycopg.connect(environment["DATABASE_URL"]) as database:
        assert database.execute("SELECT count(*) FROM pgqueue_worker").fetchone() == (0,)


def tells_the_whole_story(printed: str, environment: dict[str, str]) -> None:
    facts = printed.partition("\nSearch: ")[0]
    assert [line for line in facts.splitlines() if len(line) > 80] == []
    unwrapped = re.sub(r"\n {16}", " ", printed)
    assert [fact for fact in FACTS if not re.search(fact, unwrapped)] == [], printed
    log = (Path(environment["EXAMPLE_VAR"]) / "demo-worker.log").read_text()
    (killed,) = re.findall(r"worker killed: its (\d+ jobs|job) ran again after \d+\.\d s \(", printed)
    given_back = re.findall(r"requeued (\d+) jobs? of the process that ended", log)
    hit = 1 if killed == "job" else int(killed.split()[0])
    assert len(given_back) == 2
    assert {str(hit), str(hit + 1)}.intersection(given_back), "the job of a schedule may be among them"
    recorded, of = re.findall(r"worker killed after (\d+) of (\d+) steps of handbook.txt:", printed)[0]
    assert 3 < int(recorded) < int(of)


def keeps_busy(environment: dict[str, str]) -> None:
    """New jobs keep coming while somebody looks at the console."""
    newest = "SELECT max(id) FROM pgqueue_job WHERE status = 'done' AND task_path LIKE '%index_document'"
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as database:

        def last() -> int:
            row = database.execute(newest).fetchone()
            assert row is not None
            return int(row[0])

        before = last()
        until(lambda: last() > before, what="another document to be indexed")


def test_it_refuses_another_kind_of_database(tmp_path: Path) -> None:
    lite = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path}/db", "EXAMPLE_VAR": str(tmp_path)}
    del lite["DJANGO_SETTINGS_MODULE"]
    done = manage(lite, "demo")
    assert (done.returncode, "PostgreSQL" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


# --- manage.py seed_demo


def seed(*arguments: str) -> None:
    call_command(Command(), *arguments, stdout=StringIO())


def rows(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_there_is_every_kind_of_job_and_upkeep_leaves_them_as_they_are() -> None:
    seed("--rows", "3000")
    assert 3_000 < Job.objects.count() < 3_300
    assert set(Job.objects.values_list("status", flat=True)) == set(Job.Status.values)
    vitals = {vital(worker): worker.pk for worker in with_vitals(Worker.objects.all())}
    assert {*vitals} == set(Vital)
    assert all(model.objects.exists() for model in (JobBatch, Limit, Pause, Queue, Schedule))
    assert FailureGroup.objects.count() >= 5
    # All but the jobs of the dead worker, which recovery takes.
    dead = Job.objects.filter(worker=vitals[Vital.DEAD], status="running").values_list("pk", flat=True)
    jobs = f"SELECT * FROM pgqueue_job WHERE id <> ALL (ARRAY{[*dead, 0]}) ORDER BY id"
    before = rows(jobs)
    session = connect("default")
    try:
        rounds = Rounds()
        for now in (100.0, 200.0, 300.0):
            rounds.run(session, now)
    finally:
        session.close()
    assert rows(jobs) == before
    seed("--clear")
    tables = rows("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'pgqueue_%%'")
    filled = {table for (table,) in tables if rows(f"SELECT FROM {table} LIMIT 1")}
    of_maintenance = {"pgqueue_depth", "pgqueue_duty", "pgqueue_gone", "pgqueue_ring"}
    assert filled <= {*of_maintenance, "pgqueue_status", "pgqueue_task"}


@pytest.mark.django_db
def test_a_database_that_is_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --yes, what the queues of the user have stays as it is, also their counts of this minute."""
    own = JobFactory.create(queue_name="default")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgqueue_depth")
        cursor.execute("SELECT _pgqueue_count_depth()")
    WorkerFactory.create(host="app-1")
    with pytest.raises(
        CommandError, match="1 live workers would see these jobs, and it has jobs of your own"
    ):
        seed("--rows", "1000")

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt  # --stay: heartbeats are sent until somebody stops it

    monkeypatch.setattr("time.sleep", sleep)
    seed("--rows", "1000", "--yes", "--stay")
    assert Job.objects.count() > 1000
    assert {vital(worker) for worker in with_vitals(Worker.objects.all())} == set(Vital)
    seed("--clear")
    assert list(Job.objects.all()) == [own]
    with connection.cursor() as cursor:
        cursor.execute("SELECT queue_name, ready FROM pgqueue_depth")
        assert cursor.fetchall() == [("default", 1)]
