"""The role of the database has short timeouts, as administrators set them for everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import until

from ..harness.accounts import Run
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from ..harness.worlds import server_of_its_own
from .server import in_transaction
from .sessions import only_atomic_jobs_ran_again, terminate_all

__all__ = ["SCENARIOS"]

WAITED, RAN = "lock_timeout", "statement_timeout"
LOCKED = 1.5
"""Seconds: much longer than the role may wait, and shorter than a worker waits in its own sessions."""


def wait_for_a_lock(stage: Stage) -> None:
    """Let the role wait for locks for less time than the table of jobs is locked."""
    _end_while_locked(stage, WAITED)


def run_for_too_long(stage: Stage) -> None:
    """Let each statement of the role take less time than the table of jobs is locked."""
    _end_while_locked(stage, RAN)


def _end_while_locked(stage: Stage, setting: str) -> None:
    """Let an atomic job end, and the load enqueue, while nobody can write to the table of jobs."""
    with _role_has(stage, setting, 200):
        run = in_transaction(stage, 0.5)
        with stage.world.connect() as own, own.transaction():
            own.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")  # not its role's
            own.execute("LOCK TABLE pgqueue_job IN SHARE ROW EXCLUSIVE MODE")
            time.sleep(LOCKED)
        until(lambda: _has_run_again(stage, run), seconds=PATIENCE, what=f"the job runs again: {run}")
    stage.over(run.number)
    stage.all_up()


def _has_run_again(stage: Stage, run: Run) -> bool:
    return any(other.number == run.number and other.lease != run.lease for other in stage.accounts().runs)


@contextmanager
def _role_has(stage: Stage, setting: str, milliseconds: int) -> Iterator[None]:
    """Give the role of all new sessions a timeout, and end the old ones, before and after the block."""
    with stage.havoc.fault(setting), stage.world.connect() as own:
        own.execute("SET application_name = 'chaos'")  # so that it is not ended
        own.execute(f"ALTER ROLE CURRENT_USER SET {setting} = {milliseconds}")
        terminate_all()
        try:
            yield
        finally:
            own.execute(f"ALTER ROLE CURRENT_USER RESET {setting}")
            terminate_all()


SCENARIOS = [
    Scenario(
        name="timeouts of the role",
        promises=("own-timeouts",),
        expects="""
            The role of the database has a short lock_timeout or statement_timeout, and a table is locked for
            longer. Workers wait, since their sessions have timeouts of their own. Enqueues that must wait
            longer than the role may fail. Atomic jobs whose end cannot be written in time run again, and lose
            no attempt.
        """,
        faults=(wait_for_a_lock, run_for_too_long),
        world=server_of_its_own,
        check=only_atomic_jobs_ran_again,
        within={WAITED: 3.0, RAN: 3.0},
    ),
]
