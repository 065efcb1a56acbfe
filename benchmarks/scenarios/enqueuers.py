"""Many clients that enqueue single jobs at the same time, as web processes do: what the wake-up costs them.

Each client is a session with one statement and one commit for each job (``benchmarks.clients``). A worker
that sleeps is a session that listens and holds the sleepers' lock, but never looks for jobs: so somebody
sleeps at every enqueue, while a real worker would be awake after the first one.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant
from benchmarks.sleepers import sleepers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FIGURE = "enqueued/s"
PROCESSES = 2
COMMIT_DELAY = 1_500  # microseconds

UNWOKEN = "without the trigger"
AWAKE = "nobody asleep"
ASLEEP = "one asleep"
WAYS = (UNWOKEN, AWAKE, ASLEEP)


def enqueue(contender: Contender, clients: int, seconds: float, how: str, commit_delay: int) -> Figures:
    """Let the clients enqueue for some time."""
    contender.start_again()
    contender.settle()
    command = (sys.executable, "-m", "benchmarks.clients", str(clients // PROCESSES), str(seconds))
    with ExitStack() as stack:
        if how == UNWOKEN:
            stack.enter_context(without_trigger(contender))
        if how == ASLEEP:
            stack.enter_context(sleepers(contender.url, 1))
        stack.enter_context(delayed_commits(contender, commit_delay))
        programs = [stack.enter_context(contender.beside(*command)) for _ in range(PROCESSES)]
        for program in programs:
            program.answer()  # it is connected
        for program in programs:
            program.tell("begin")
        answers = [program.answer() for program in programs]
    return {FIGURE: sum(int(jobs) / float(taken) for jobs, taken in answers)}


@contextmanager
def without_trigger(contender: Contender) -> Iterator[None]:
    """Switch the wake-up off."""
    switch = "ALTER TABLE pgqueue_job_live {} TRIGGER pgqueue_wake_insert"
    contender.connection.execute(switch.format("DISABLE"))
    try:
        yield
    finally:
        contender.connection.execute(switch.format("ENABLE"))


@contextmanager
def delayed_commits(contender: Contender, microseconds: int) -> Iterator[None]:
    """Set ``commit_delay`` for the sessions of this database that begin from now on."""
    (name,) = contender.connection.execute("SELECT quote_ident(current_database())").fetchone() or ("",)
    contender.connection.execute(f"ALTER DATABASE {name} SET commit_delay = {microseconds}")
    try:
        yield
    finally:
        contender.connection.execute(f"ALTER DATABASE {name} RESET commit_delay")


def variants(clients: int, bench: Bench) -> list[Variant]:
    """Return the variants: three ways, each with and without a delay of the commits."""
    ours, seconds = bench.contenders[OURS], max(0.5, bench.seconds / 3)
    return [
        Variant(name, partial(enqueue, ours, clients, seconds, how, commit_delay))
        for commit_delay in (0, COMMIT_DELAY)
        for how, name in zip(WAYS, names(commit_delay), strict=True)
    ]


def names(commit_delay: int) -> list[str]:
    """Return the names of the variants with this delay."""
    return [f"{how}, commit_delay {commit_delay}" if commit_delay else how for how in WAYS]


def targets() -> Iterator[Target]:
    """Yield what we want to reach of the rate without the trigger."""
    for commit_delay in (0, COMMIT_DELAY):
        unwoken, awake, asleep = names(commit_delay)
        yield Target(FIGURE, 0.9, awake, unwoken)
        yield Target(FIGURE, 0.7, asleep, unwoken)


def scenario(name: str, clients: int) -> Scenario:
    """Return the scenario for this number of clients."""
    return Scenario(
        name=name,
        title=f"{clients} clients enqueue at the same time",
        about="Single enqueue() in autocommit mode, no worker runs. One asleep: every enqueue() finds a"
        " sleeping worker to notify.",
        figure=FIGURE,
        variants=partial(variants, clients),
        baseline=UNWOKEN,
        rounds=2,
        contestants=(OURS,),
        targets=tuple(targets()),
    )


SCENARIOS = [scenario("enqueuers", 8), scenario("enqueuers-32", 32)]
