"""The short form of each scenario, and of random calls. ``python3 dev.py chaos`` is their long form."""

from __future__ import annotations

import inspect
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Command
from tests.support.machines import lacks_faketime
from tests.support.release import previous
from tests.support.sessions import Connect

from .fuzz.functions import Calls
from .fuzz.machine import live
from .harness.scenario import perform
from .harness.worlds import NO_HISTORY, changed_since, lacks_history
from .scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
#: `.ci/run` makes these faults, the most frequent ones of production. `.ci/run long` makes all.
AT_EACH_CHANGE = {
    "kills", "stopped past the lease", "tasks that die", "a task that never returns", "SIGTERM storm",
    "lost sessions", "server restarts", "lost claims", "upgrade",
}  # fmt: skip


def needs(lacks: str) -> None:
    """Skip the test if this machine lacks something. In CI, it fails."""
    if lacks:
        fails = os.environ.get("CI") == "true" and lacks != NO_HISTORY
        (pytest.fail if fails else pytest.skip)(f"this test needs {lacks}")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in AT_EACH_CHANGE else pytest.mark.long) for name in SCENARIOS],
)
@pytest.mark.promise(
    "exists-if-committed", "at-least-once", "completed-once", "atomic-exactly-once", "faults-cost-no-attempt"
)
def test_the_ledger_is_balanced(start: Callable[..., Command], tmp_path: Path, name: str) -> None:
    needs(SCENARIOS[name].lacks())
    report = perform(SCENARIOS[name], start, tmp_path, seed=SEED)
    print(report)
    assert not report.problems, str(report)


def test_each_check_belongs_to_a_scenario() -> None:
    """A function that takes the stage and the audit, and that no scenario names, checks nothing."""
    modules = {sys.modules[act.__module__] for scenario in SCENARIOS.values() for act in scenario.faults}
    checks = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isfunction(value) and [*inspect.signature(value).parameters] == ["stage", "audit"]
    }
    assert checks
    assert not checks - {scenario.check for scenario in SCENARIOS.values()}


@pytest.mark.promise("old-and-new")
def test_released_files_have_not_changed() -> None:
    """New versions are new files and new migrations."""
    needs(lacks_history())
    changed = changed_since("django_pgqueue/migrations", "django_pgqueue/sql")
    assert not changed, (
        f"The previous release ({previous()}) has installed these files, which do not change in its "
        f"databases: {', '.join(changed)}. Write a new version into a new file, with a new migration."
    )


# --- Random calls of all functions, and of all that moves jobs

INTERNAL, PUBLIC = 2, 15
"""Calls of each function."""
LIVES, CALLS = 50, 20
"""So many lives of a few jobs, of so many calls. Each guard that was removed was found within them."""


@pytest.mark.django_db(transaction=True)
def test_each_answer_is_a_clear_error_or_harmless(connect: Connect) -> None:
    """The other jobs wait, run and are over. A call cannot know their leases. All calls are rolled back."""
    calls = Calls(connect(autocommit=True, options="-c statement_timeout=5s"))
    assert len(calls.functions) > 100
    problems = calls.make(seed=None, internal=INTERNAL, public=PUBLIC)
    assert not problems, "\n".join(problems)


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(1200)  # a life that fails is shrunk
def test_jobs_live_as_the_model_says(connect: Connect) -> None:
    live(connect(autocommit=True, options="-c statement_timeout=20s"), lives=LIVES, calls=CALLS)


# --- Longer runs: a queue that nobody touches for three days, and a ledger over three shards


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lacks", "module", "arguments", "said"),
    [
        (lacks_faketime, "benchmarks.thirty_days", "1 --days 3 --sample 120", ["3 days in", ", 0 problems"]),
        # One shard is added and one drained, while workers, their processes and the servers are killed.
        (str, "tests.chaos.shards", "--seconds 12", ["balanced"]),
    ],
    ids=["three days leave nothing behind", "no call is lost or repeated over three shards"],
)
def test_a_longer_run(lacks: Callable[[], str], module: str, arguments: str, said: list[str]) -> None:
    needs(lacks())
    command = [sys.executable, "-m", module, *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words for words in said if words not in done.stdout] == []
