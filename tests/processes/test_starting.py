"""If a worker cannot start, it prints one clear line, and its exit code is not 0."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgqueue import enqueue, why
from django_pgqueue.models import Worker
from django_pgqueue.worker.supervisor.heartbeat import PATIENCE
from tests.app import worker_tasks as tasks
from tests.support.commands import ROOT, SLOW, Command, databases
from tests.support.databases import fresh_database
from tests.support.proxies import proxy
from tests.support.workers import fresh, until

Start = Callable[..., Command]


@pytest.fixture
def forks() -> bool:
    """Each command is started by a new interpreter."""
    return False


def with_default(**changes: Any) -> dict[str, str]:
    """Return the environment of a command with another default database."""
    given = databases()
    given["default"].update(changes)
    return {"TEST_DATABASES": json.dumps(given)}


def complaint(command: Command) -> str:
    """Return what the command prints instead of starting."""
    assert command.wait() == 1, command.log
    assert "Traceback" not in command.log
    _, found, said = command.log.partition("CommandError: ")
    assert found, command.log
    return said


def test_no_database(start: Start) -> None:
    said = complaint(start(env=with_default(NAME="nowhere")))
    assert said.startswith("The database 'default' cannot be reached: ")
    assert '"nowhere" does not exist' in said


@pytest.mark.parametrize("arguments", [(), ("--burst",), ("--one-process", "--burst"), ("--one-process",)])
def test_a_server_that_starts_later(start: Start, arguments: tuple[str, ...]) -> None:
    job = enqueue(tasks.noop)
    parameters = connection.get_connection_params()
    with proxy(parameters["host"], int(parameters["port"])) as door:
        door.close_door()
        command = start(*arguments, env=with_default(HOST="127.0.0.1", PORT=door.port))
        command.logged("no connection yet")
        assert fresh(job).status == "pending"
        door.open_door()
        until(lambda: fresh(job).status == "done", seconds=SLOW)
        if "--burst" not in arguments:
            command.send(signal.SIGTERM)
        assert command.wait() == 0, command.log


@pytest.mark.parametrize("arguments", [(), ("--one-process",)])
def test_a_signal_ends_the_wait_for_a_server(start: Start, arguments: tuple[str, ...]) -> None:
    command = start(*arguments, env=with_default(HOST="127.0.0.1", PORT=1))
    command.logged("no connection yet")
    command.send(signal.SIGTERM)
    assert command.process.wait(PATIENCE / 2) == 0


def test_missing_migrations(start: Start) -> None:
    with fresh_database() as name:
        said = complaint(start(env=with_default(NAME=name)))
    assert said.startswith("The database 'default' lacks pgqueue_alert, ")
    assert "manage.py migrate --database default" in said


def test_another_vendor(start: Start, tmp_path: Path) -> None:
    given = databases()
    given["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    command = start("--database", "default", env={"TEST_DATABASES": json.dumps(given)})
    assert command.wait() == 1
    assert "but it is not PostgreSQL (sqlite)" in command.log  # Django's checks say so first
    command = start("--database", "default", "--skip-checks", env={"TEST_DATABASES": json.dumps(given)})
    assert "the database 'default' is sqlite. Name another one with --database" in complaint(command)


def test_an_unknown_setting(start: Start) -> None:
    command = start(MAX_ATEMPTS=3)
    assert command.wait() == 1
    assert "Did you mean 'MAX_ATTEMPTS'?" in command.log


BROKEN = """
import sys
from tests.processes.settings import *
if "django_pgqueue.worker" in sys.orig_argv:
    {statement}
"""


@pytest.mark.parametrize(("arguments", "statement", "how"), [
    ([], "raise LookupError('no licence\\nhere')", "exit code 1 (LookupError: no licence here)"),
    (["--burst"], "sys.exit(0)", "exit code 0 (SystemExit: 0)"),
    (["--burst"], "import os; os._exit(5)", "exit code 5"),
])  # fmt: skip
def test_processes_that_cannot_start_end_the_command_with_the_cause(
    start: Start, tmp_path: Path, arguments: list[str], statement: str, how: str
) -> None:
    """The supervisor can start, but its processes cannot. It says why and gives up."""
    (tmp_path / "broken.py").write_text(BROKEN.format(statement=statement))
    command = start(*arguments, env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "broken"})
    assert command.wait() == 1
    assert command.log.count("started") == 5
    assert command.log.endswith(f"worker processes failed to start 5 times in a row: {how}\n"), command.log


def test_a_system_that_lets_no_process_start_ends_the_command(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import sys\nfrom tests.processes.settings import *\nsys.executable = '/nowhere/python'\n"
    )
    command = start(env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "broken"})
    assert command.wait() == 1
    assert "Traceback" not in command.log
    assert "5 times in a row: [Errno 2] No such file or directory: '/nowhere/python'" in command.log


def test_a_process_that_cannot_start_does_not_stop_those_that_work(start: Start, tmp_path: Path) -> None:
    """Memory may be short, or an installation may be running. The start is repeated, and other workers
    continue.
    """
    (tmp_path / "broken.py").write_text(
        BROKEN.format(
            statement=f"""
    import pathlib, time
    folder = pathlib.Path({str(tmp_path)!r})
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        while not (folder / "go").exists():
            time.sleep(0.01)
        raise LookupError("no room")"""
        )
    )
    command = start("--processes", "2", env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "broken"})
    (worker,) = command.workers()
    until(lambda: Worker.objects.get().heartbeat_at > worker.heartbeat_at, seconds=SLOW)
    (tmp_path / "go").touch()
    command.logged("ended with exit code 1 (LookupError: no room)", times=6)
    job = enqueue(tasks.noop)
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log


def test_the_server_comes_back_and_the_work_goes_on(start: Start) -> None:
    """All connections are cut and new ones are refused for some time, as in a failover."""
    command = start("--processes", "2", HEARTBEAT=0.2, LEASE=5)
    command.workers(2)
    name = connection.settings_dict["NAME"]
    parameters = {**connection.get_connection_params(), "dbname": "postgres"}
    for unwanted in ("context", "cursor_factory", "autocommit"):
        parameters.pop(unwanted, None)
    connection.close()
    with psycopg.connect(**parameters, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            command.logged("the connection is lost", times=3)
            command.logged("no connection yet", times=3)
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    job = enqueue(tasks.noop)
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    command.logged("connected again", times=3)
    assert command.process.poll() is None
    assert "Traceback" not in command.log


def test_a_process_that_hangs_while_it_starts_is_replaced_and_seen(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        f"""
import pathlib, sys, time
from tests.processes.settings import *
from django_pgqueue.worker.supervisor import child
child.STARTING = child.STARTING._replace(told_after=0.1, killed_after=6.0)
if "django_pgqueue.worker" in sys.orig_argv:
    try:
        pathlib.Path({str(tmp_path / "first")!r}).touch(exist_ok=False)
        time.sleep(1000)
    except FileExistsError:
        pass
"""
    )
    alive = tmp_path / "alive"
    job = enqueue(tasks.noop)
    command = start(
        "--alive-file", str(alive), env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "broken"}
    )
    command.logged("still loads the settings and apps after 0.1 s")
    assert "one is starting, but none of its processes has registered" in why(job).text
    until(lambda: "slow to start" in alive.read_text(), seconds=SLOW)
    command.logged("(it had not loaded the settings and apps within 6 s)")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    command.send(signal.SIGTERM)
    assert command.wait() == 0


@pytest.mark.parametrize("argument", ["--help"])
def test_help_names_every_option(start: Start, argument: str) -> None:
    command = start(argument)
    assert command.wait() == 0
    for option in (
        "queues",
        "exclude-queues",
        "processes",
        "threads",
        "burst",
        "database",
        "max-jobs",
        "max-memory",
    ):
        assert f"--{option}" in command.log


def test_processes_have_the_flags_of_the_interpreter() -> None:
    code = "from django_pgqueue.worker.spawn import child_command; print(child_command('x')[1:])"
    flags = ["-O", "-W", "error::UserWarning", "-X", "dev", "-u"]
    done = subprocess.run(
        [sys.executable, *flags, "-E", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = ast.literal_eval(done.stdout)
    assert found[-3:] == ["-m", "django_pgqueue.worker", "x"]
    assert {"-O", "-Werror::UserWarning", "-u", "dev"} <= {
        flag for part in found for flag in (part, part[2:])
    }
    assert "-E" not in found


def test_what_a_task_prints_into_a_pipe_comes_line_by_line(start: Start) -> None:
    reading, writing = os.pipe()
    try:
        start(stdout=writing)
        enqueue(tasks.say, "hello")
        with open(reading, encoding="utf-8", closefd=False) as output:
            assert "hello\n" in iter(output.readline, "")
    finally:
        os.close(reading)
        os.close(writing)


def test_closed_output(start: Start) -> None:
    command = start(through=["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh"])
    job = enqueue(tasks.say, "nobody hears it")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    command.send(signal.SIGTERM)
    assert command.wait() == 0


#: What sets up Django in a project without a settings module, and a program of that project.
SET_UP = """
import django
from django.conf import settings

def set_up():
    from tests.processes import settings as given
    settings.configure(**{name: getattr(given, name) for name in dir(given) if name.isupper()})
    django.setup()
"""
PROGRAM = """
import os, sys
from django.core.management import execute_from_command_line

{before}
execute_from_command_line(sys.argv[3:])
"""


def run_program(start: Start, folder: Path, before: str, **given: Any) -> Command:
    program = folder / "program.py"
    program.write_text(PROGRAM.format(before=before))
    (folder / "site_setup.py").write_text(SET_UP)
    env = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **given.pop("env", {})}
    return start(through=[sys.executable, str(program)], env=env, **given)


def check_works(command: Command) -> None:
    """Check that a job runs, also one in a process of its own."""
    with transaction.atomic(), connection.cursor() as cursor:
        job, alone = enqueue(tasks.noop), enqueue(tasks.noop)
        cursor.execute("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", [alone.pk])
    until(lambda: {fresh(job).status, fresh(alone).status} == {"done"}, seconds=SLOW)
    command.logged("runs isolated in process")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log


CONFIGURE = "del os.environ['DJANGO_SETTINGS_MODULE']; import site_setup; site_setup.set_up()"


def test_a_project_that_calls_settings_configure(start: Start, tmp_path: Path) -> None:
    check_works(run_program(start, tmp_path, CONFIGURE, SETUP="site_setup.set_up"))


def test_a_project_that_calls_settings_configure_is_told_what_is_missing(
    start: Start, tmp_path: Path
) -> None:
    said = complaint(run_program(start, tmp_path, CONFIGURE))
    assert said.startswith("Worker processes cannot repeat settings.configure(). ")
    assert 'name it in PGQUEUE: SETUP="shop.setup.django"' in said


def test_a_project_of_django_configurations(start: Start, tmp_path: Path) -> None:
    """Its settings cannot be loaded before its own setup was called."""
    (tmp_path / "configurations.py").write_text(
        "import django\nready = False\ndef setup():\n    global ready\n    ready = True\n    django.setup()\n"
    )
    (tmp_path / "classes.py").write_text(
        "import configurations\nassert configurations.ready\nfrom tests.processes.settings import *\n"
    )
    env = {"DJANGO_SETTINGS_MODULE": "classes", "DJANGO_CONFIGURATION": "Production"}
    check_works(run_program(start, tmp_path, "import configurations; configurations.setup()", env=env))
