"""If a worker cannot start, it says why in one line and its exit code is not 0. If it can, it has the setup,
the output and the code of the project.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue import enqueue, why
from django_pgqueue.models import Worker
from django_pgqueue.worker.supervisor import child, supervisor
from django_pgqueue.worker.supervisor.heartbeat import PATIENCE
from tests.app import worker_tasks as tasks
from tests.support.commands import ROOT, SLOW, Command, Start, at_port, children_of, is_alive, over
from tests.support.factories import JobFactory
from tests.support.poolers import Proxy
from tests.support.workers import fresh, until


@pytest.mark.parametrize("arguments", [("--burst",), ("--burst", "--one-process")], ids=" ".join)
def test_a_server_that_starts_later_is_waited_for_until_a_signal(
    start: Start, door: Proxy, arguments: tuple[str, ...]
) -> None:
    job = enqueue(tasks.noop)
    one, other = (start(*arguments, env=at_port(port)) for port in (door.port, 1))
    for command in (one, other):
        command.logged("no connection yet")
    other.send(signal.SIGTERM)
    assert other.process.wait(PATIENCE / 2) == 128 + signal.SIGTERM
    assert fresh(job).status == "pending"
    door.open_door()
    assert one.wait() == 0, one.log
    assert fresh(job).status == "done"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("settings", "how"), [
    ("raise LookupError('no license\\nhere')", "exit code 1 (LookupError: no license here)"),
    ("import sys; sys.exit(0)", "exit code 0 (SystemExit: 0)"),
    ("import os; os._exit(5)", "exit code 5"),
    (None, "[Errno 2] No such file or directory: '/nowhere/python'"),
])  # fmt: skip
def test_processes_that_cannot_start_end_the_command_with_the_cause(
    settings: str | None, how: str, forks_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "LONGEST_BACKOFF", 0.0)
    monkeypatch.setattr(supervisor, "STILLBIRTHS", 2)
    if settings is None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    else:
        (tmp_path / "broken.py").write_text(settings)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "broken")
    with pytest.raises(CommandError) as raised:
        call_command("runqueueworker", burst=True, skip_checks=True)
    assert raised.value.returncode == 1
    assert str(raised.value) == f"worker processes failed to start 2 times in a row: {how}"


def test_a_process_that_cannot_start_is_seen_and_does_not_stop_those_that_work(
    start: Start, tmp_path: Path
) -> None:
    """Memory may be short, or an installation may be running. The start is repeated, and other workers
    continue.
    """
    alive, job = tmp_path / "alive", enqueue(tasks.noop)
    command = start(
        "--processes", "2", "--alive-file", str(alive),
        env={"TEST_STARTS_SLOWLY": str(tmp_path)},
        constants={"child.STARTING": {"warn_after": 0.1}, "child.LONGEST_BACKOFF": 0.5,
                   "supervisor.STILLBIRTHS": 2, "supervisor.WRITE_EVERY": 0.2},
    )  # fmt: skip
    command.logged("still loads the settings and apps after 0.1 s", times=2)
    assert "one is starting, but none of its processes has registered" in why(job).text
    (tmp_path / "begin").touch()
    over(job)
    until(lambda: alive.read_text() == "1 of 2 processes at work; 1 slow to start\n", seconds=SLOW)
    worker = Worker.objects.get()
    until(lambda: Worker.objects.get().heartbeat_at > worker.heartbeat_at, seconds=SLOW)
    (tmp_path / "fail").touch()
    command.logged("ended with exit code 1 (LookupError: no room)", times=4)
    later = enqueue(tasks.noop)
    over(later)
    assert (fresh(job).status, fresh(later).status) == ("done", "done")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log


def test_processes_have_the_flags_of_the_interpreter() -> None:
    code = (
        "import subprocess, sys; from django_pgqueue.worker import spawn\n"
        "subprocess.Popen = lambda command, **options: print(command[1:])\n"
        "spawn.start('x', sys.stdin, 0)"
    )
    flags = ["-O", "-W", "error::UserWarning", "-X", "dev", "-u"]
    done = subprocess.run(
        [sys.executable, *flags, "-E", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = ast.literal_eval(done.stdout)
    assert found[-4:-1] == ["-m", "django_pgqueue.worker", "x"]
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
    job = enqueue(tasks.say, "nobody hears it")
    command = start("--burst", through=["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh"])
    assert command.wait() == 0
    assert fresh(job).status == "done"


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

del os.environ["DJANGO_SETTINGS_MODULE"]
import site_setup
site_setup.set_up()
execute_from_command_line()
"""


def test_a_project_that_calls_settings_configure(start: Start, tmp_path: Path) -> None:
    """A job runs, also in a process of its own."""
    (tmp_path / "site_setup.py").write_text(SET_UP)
    (tmp_path / "site_program.py").write_text(PROGRAM)
    jobs = [JobFactory.create(task_path=tasks.noop.module_path, args=[], crash_count=n) for n in (0, 1)]
    command = start(
        "--burst", program="site_program", env={"PYTHONPATH": str(tmp_path)}, SETUP="site_setup.set_up"
    )  # fmt: skip
    assert command.wait() == 0, command.log
    assert "runs isolated in process" in command.log
    assert [fresh(job).status for job in jobs] == ["done", "done"]


TASKS = """
from django_pgqueue import task

@task
def answer():
    return {answer!r}
"""


@pytest.fixture
def reloaded(tmp_path: Path) -> Path:
    """The tasks module of an app that is installed; it cannot be imported yet."""
    app = tmp_path / "reloaded"
    app.mkdir()
    (app / "__init__.py").touch()
    (tmp_path / "reload_settings.py").write_text(
        "from tests.processes.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded']\n"
    )
    path = app / "tasks.py"
    path.write_text(TASKS.format(answer="one").replace("def", "deaf"))
    return path


def leads_a_group(command: Command) -> int:
    """Return the supervisor that a reloader has started."""
    (supervisor,) = [pid for pid in children_of(command.process.pid) if os.getpgid(pid) == pid]
    return supervisor


def test_a_task_that_is_saved_runs_as_it_is_now(start: Start, reloaded: Path, tmp_path: Path) -> None:
    command = start(
        "--reload", env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "reload_settings"}
    )
    (first,) = command.workers()
    assert "reloaded.tasks cannot be imported" in command.log
    reloaded.write_text(TASKS.format(answer="two"))
    command.logged(f"{reloaded} has changed: restarting.")
    job = JobFactory.create(task_path="reloaded.tasks.answer", args=[])
    over(job)
    assert fresh(job).result == "two"
    (second,) = command.workers()
    assert second.pid != first.pid
    assert command.log.count("(-v 2 lists them)") == 2, "a banner for each start"
    # A terminal signals the group of the reloader, which hands the signal on: the supervisor hears it once.
    leads_a_group(command)
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert command.log.count("Stopping: no jobs are running.") == 2
    assert "Traceback" not in command.log


def test_a_reloader_that_is_killed_takes_its_worker_along(start: Start) -> None:
    command = start("--reload", env={"PYTHONPATH": str(ROOT), **at_port(1)})
    command.logged("no connection yet")
    supervisor = leads_a_group(command)
    command.send(signal.SIGKILL)
    command.wait()
    until(lambda: not is_alive(supervisor), seconds=SLOW)
