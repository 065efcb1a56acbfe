"""Workers that are told to end, at any moment and again and again, while jobs come in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from django_pgqueue.models import Job
from tests.support.commands import SLOW, Command

from ..harness.havoc import descendants
from ..harness.scenario import Scenario
from ..harness.stage import Stage

__all__ = ["SCENARIOS"]

AIM = 2.0
"""Seconds to wait for the moment at which a signal is to be sent. After that it is sent anyway."""


def at_claim(stage: Stage) -> bool:
    """Whether a job is claimed and has not begun."""
    begun = {(run.lease, run.job) for run in stage.accounts().runs}
    return any(pair not in begun for pair in _running())


def at_run(stage: Stage) -> bool:
    """Whether a job runs."""
    return any(run.ended is None for run in stage.accounts().runs)


def at_finish(stage: Stage) -> bool:
    """Whether a job has come to its end, and this is not in its row yet."""
    ended = {(run.lease, run.job) for run in stage.accounts().runs if run.ended is not None}
    return any(pair in ended for pair in _running())


def end_one(stage: Stage, moment: Callable[[Stage], bool]) -> None:
    """Tell a command to end at such a moment, and start another one at the same time."""
    command = stage.choice.choice(stage.commands)
    _wait_for(stage, moment)
    with stage.havoc.fault("SIGTERM", _processes(command), explains=False):
        stage.commands.remove(command)
        command.send(signal.SIGTERM)
        stage.start()
        assert command.wait() == 0, command.log
    stage.all_up()


def storm(stage: Stage) -> None:
    """Tell processes and commands to end in quick succession: more signals than there are processes."""
    for moment in (at_claim, at_run, at_finish):
        _wait_for(stage, moment)
        for pid in stage.choice.sample(working := stage.at_work(), min(1, len(working))):
            with (
                stage.havoc.fault("SIGTERM of a process", {pid}, explains=False),
                suppress(ProcessLookupError),
            ):
                os.kill(pid, signal.SIGTERM)  # it may have been told before, and have ended
    for moment in (at_claim, at_run, at_finish):
        end_one(stage, moment)


def end_at_once(stage: Stage) -> None:
    """Tell a command to end twice: it does not wait for its jobs."""
    run = stage.occupy()
    command = next(command for command in stage.commands if command.process.pid == run.parent)
    with stage.havoc.fault("SIGTERM twice", _processes(command)):
        stage.commands.remove(command)
        command.send(signal.SIGTERM)
        time.sleep(stage.choice.uniform(0.0, 0.2))
        command.send(signal.SIGTERM)
        stage.start()
        command.process.wait(SLOW)
    stage.all_up()


def roll(stage: Stage) -> None:
    """Replace each command: start the new one, wait until it is up, and let the old one end."""
    for old in stage.commands[:]:
        pids = _processes(old)
        with stage.havoc.fault("rolling restart", pids, explains=False):
            stage.start()
            stage.all_up()
            stage.end(old)
    stage.all_up()


def _wait_for(stage: Stage, moment: Callable[[Stage], bool]) -> None:
    end = time.monotonic() + AIM
    while not moment(stage) and time.monotonic() < end:
        time.sleep(0.001)


def _running() -> list[tuple[int | None, int]]:
    """Return the leases and the ids of the jobs that are running for the queue."""
    return list(Job.objects.filter(shelf=0, status="running").values_list("lease", "pk"))


def _processes(command: Command) -> set[int]:
    return {command.process.pid, *descendants(command.process.pid)}


SCENARIOS = [
    Scenario(
        name="SIGTERM storm",
        promises=("told-to-stop", "sigterm"),
        expects="""
            A worker that is told to end claims nothing more, lets its jobs come to their end, reports them,
            and exits with 0, whether it claims, runs or finishes a job at that moment. Told twice, it gives
            its running jobs back at once. No job loses an attempt, and only those that it gave back run
            again.
        """,
        faults=(storm, end_at_once),
    ),
    Scenario(
        name="rolling restart",
        promises=("no-second-run",),
        expects="Under load, all workers are replaced one by one. No job runs twice, and no retry is spent.",
        faults=(roll, roll),
        rate=40.0,
    ),
]
