"""``runqueueworker --reload``: what is saved is what runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import SLOW, Command, children_of, is_alive
from tests.support.factories import JobFactory
from tests.support.waiting import until
from tests.support.workers import fresh

TASKS = """
from django_pgqueue import task

@task
def answer():
    return {answer!r}
"""


@pytest.fixture
def forks() -> bool:
    """The reloader starts the command as it was started, by an interpreter."""
    return False


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
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


def test_a_task_that_is_saved_runs_as_it_is_now(
    start: Callable[..., Command], tasks: Path, tmp_path: Path
) -> None:
    command = start(
        "--reload", env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "reload_settings"}
    )
    (first,) = command.workers()
    assert "reloaded.tasks cannot be imported" in command.log
    tasks.write_text(TASKS.format(answer="two"))
    command.logged(f"{tasks} has changed: restarting.")
    job = JobFactory.create(task_path="reloaded.tasks.answer", args=[])
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    assert fresh(job).result == "two"
    (second,) = command.workers()
    assert second.pid != first.pid
    assert command.log.count("(-v 2 lists them)") == 2, "a banner for each start"
    # A terminal signals the group of the reloader, which hands the signal on: the supervisor hears it once.
    (supervisor,) = children_of(command.process.pid)
    assert os.getpgid(supervisor) != os.getpgid(command.process.pid)
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert command.log.count("Stopping: no jobs are running.") == 2
    assert "Traceback" not in command.log


def test_a_reloader_that_is_killed_takes_its_workers_along(
    start: Callable[..., Command], tasks: Path, tmp_path: Path
) -> None:
    command = start(
        "--reload", env={"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "reload_settings"}
    )
    (worker,) = command.workers()
    (supervisor,) = children_of(command.process.pid)
    command.send(signal.SIGKILL)
    command.wait()
    until(lambda: not is_alive(supervisor) and not is_alive(worker.pid), seconds=SLOW)
