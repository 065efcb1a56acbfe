"""The whole demonstration as a command, with a real worker and a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

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
            **os.environ,
            "DATABASE_URL": re.sub(r"/[^/]*$", f"/{name}", given),
            "EXAMPLE_VAR": str(tmp_path),
        }
        server.execute(f"DROP DATABASE {name}")  # fails if a process is left that uses it


def demo(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in environment.items() if key != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, str(MANAGE), "demo", *options]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def worker_log(environment: dict[str, str]) -> str:
    return (Path(environment["EXAMPLE_VAR"]) / "demo-worker.log").read_text()


def test_it_tells_the_whole_story_and_then_serves_until_ctrl_c(environment: dict[str, str]) -> None:
    tells_the_whole_story(environment)
    starts_over_and_serves(environment)


def tells_the_whole_story(environment: dict[str, str]) -> None:
    first = demo(environment, "--files", "100")
    assert (first.returncode, first.stderr) == (0, "")
    facts = first.stdout.partition("\nSearch: ")[0]
    assert [line for line in facts.splitlines() if len(line) > 80] == []
    printed = re.sub(r"\n {16}", " ", first.stdout)  # long facts are wrapped
    for fact in (
        r"Rolled back +100 documents and 100 jobs in [\d.]+ s; left: 0 and 0",
        r"Batch +\d+ has these jobs; job \d+ runs after all of them",
        r"Summed up +by job \d+, which waited for the batch",
        r"Committed +100 documents and 100 jobs in",
        r"100 of 100 +[\d,]+ jobs/s +depth 0",
        r"Jobs +100 finished: \d+ done, \d+ failed",
        r"Complete +100 files: \d+ indexed, \d+ failed; none missing, none twice",
        r"Waited +p50 .* p95 .* p99",
        r"Ran +p50 .* p95 .* p99",
        r"Queue's share +\d.* per job \(\d processes? w",
        r"its job continued with step \d+, (vectors \d+|publish), after \d+\.\d s\n",
        r"Failed +1 Gone",
        r"Failed +1 TooLarge",
        r"Failed +1 NotText",
        r"Second run +\d+ unchanged",
        r"Found +\d+ documents? in",
        r"Verdict +Healthy: \d workers, .* jobs/",
    ):
        assert re.search(fact, printed), fact
    (killed,) = re.findall(r"worker killed: its (\d+ jobs|job) ran again after \d+\.\d s \(", first.stdout)
    given_back = re.findall(r"requeued (\d+) jobs? of the process that ended", worker_log(environment))
    hit = 1 if killed == "job" else int(killed.split()[0])
    assert len(given_back) == 2
    assert {str(hit), str(hit + 1)}.intersection(given_back), "the job of a schedule may be among them"
    recorded, of = re.findall(r"worker killed after (\d+) of (\d+) steps of handbook.txt:", first.stdout)[0]
    assert 3 < int(recorded) < int(of)
    assert "ended with signal SIGKILL" in worker_log(environment)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """End the process and its children, whatever the result of the test is."""
    try:
        yield
    finally:
        process.terminate()


def starts_over_and_serves(environment: dict[str, str]) -> None:
    """Use the database of the demonstration. After Ctrl-C, no process is left running."""
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    process = subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--serve", "--files", "20"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with process, ended(process):
        printed = ""
        for line in process.stdout:
            printed += line
            if "Ctrl-C to stop everything" in line:
                break
        assert re.search(r"Started over +\d+ documents", printed)
        [address] = re.findall(r"Search +(http://\S+)", printed) or pytest.fail(printed)
        assert re.search(r"User +demo\n +Password +\S{8,}\n", printed)
        with urllib.request.urlopen(f"{address}?q=python", timeout=SECONDS) as page:  # noqa: S310
            assert "<mark>" in page.read().decode()
        assert "stop it first" in demo(environment).stderr
        shows_the_schedules(environment)
        keeps_busy(environment)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=SECONDS)  # noqa: S310
    with psycopg.connect(environment["DATABASE_URL"]) as database:
        assert database.execute("SELECT count(*) FROM pgqueue_worker").fetchone() == (0,)


def keeps_busy(environment: dict[str, str]) -> None:
    """New jobs keep coming while somebody looks at the console."""
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as database:

        def last() -> int:
            row = database.execute(
                "SELECT max(id) FROM pgqueue_job WHERE status = 'done' AND task_path LIKE '%index_document'"
            ).fetchone()
            assert row is not None
            return int(row[0])

        before = last()
        until(lambda: last() > before, what="another document to be indexed")


def shows_the_schedules(environment: dict[str, str]) -> None:
    command = [sys.executable, str(MANAGE), "pgqueue", "schedules"]
    listed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert "count-documents: active\n  When:        Every minute (* * * * *), UTC\n" in listed.stdout
    assert (
        "forget-missing-files: active\n  When:        At 03:00 every day (0 3 * * *), Europe/Paris\n"
        in listed.stdout
    )
    assert "Declared in: code (example_project.demo.tasks)" in listed.stdout


def test_it_refuses_another_kind_of_database(environment: dict[str, str], tmp_path: Path) -> None:
    done = demo({**environment, "DATABASE_URL": f"sqlite:///{tmp_path}/db"})
    assert done.returncode == 1
    assert "PostgreSQL" in done.stderr
    assert "Traceback" not in done.stderr
