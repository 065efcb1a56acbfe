"""Networks: a worker is cut off, or a proxy delays, resets, half closes and forgets connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from django.db import connections

from django_pgqueue.tasks.task import Task
from tests.app import ledger_tasks as tasks
from tests.support.commands import Command, with_database
from tests.support.jobs import sql
from tests.support.machines import FarPlace, far_place, lacks_far_place
from tests.support.poolers import Proxy, proxy
from tests.support.servers import OwnServer

from ..harness.havoc import processes_of
from ..harness.ledger import Run
from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import at_database, server_of_its_own
from .server import only_what_was_lost_ran_again
from .sessions import SLOW_HEARTBEAT

LEASE = 8.0
LOST, AGAIN = "the connection is lost", "connected again"
LISTENER_FOUND = "half-open listener found by its worker"
HEARTBEAT_FOUND = "half-open connection found by the supervisor"
SESSIONS_ENDED = "half-open sessions of jobs ended by the server"


@dataclass
class Far:
    """A server, and a place from which workers can be cut off."""

    server: OwnServer
    place: FarPlace
    worker: Command | None = None
    """The command that runs in that place."""


@contextmanager
def with_a_far_place(folder: Path) -> Iterator[Far]:
    """Run a server that can also be reached from a network namespace."""
    with server_of_its_own(folder) as server, far_place() as place:
        server.listen_at(place.here)
        with at_database(**server.database):
            yield Far(server, place)


def cut_off(stage: Stage) -> None:
    """Cut off a worker that runs jobs until they have run elsewhere, both ends have noticed, and the locks of
    its jobs are free.
    """
    world: Far = stage.world
    worker = _far_worker(stage)
    file = stage.ledger.folder / f"go-{time.monotonic_ns()}"
    held = [_occupy(stage, worker, file, task) for task in (tasks.wait_for_file, tasks.lock_until_file)]
    before = len(news(worker))
    with stage.havoc.fault("cut off", processes_of(worker)):
        world.place.pull()
        try:
            stage.measure(
                {
                    LISTENER_FOUND: lambda: found(worker, held[0].pid, before),
                    HEARTBEAT_FOUND: lambda: found(worker, worker.process.pid, before),
                    SESSIONS_ENDED: lambda: not _sessions(world.place.there),
                    "jobs run elsewhere": lambda: _go_on(stage, held, file),
                }
            )
        finally:
            world.place.plug()
    for run in held:
        _go(file, run)
    worker.logged(f"job {held[0].job}: the lease was lost, so its outcome (done) was refused")


def news(worker: Command) -> list[str]:
    """Return what the processes of a command have logged about their connections."""
    return [line for line in worker.log.splitlines() if LOST in line or AGAIN in line]


def found(worker: Command, pid: int, before: int) -> bool:
    """Return whether this process has told, after so many news, that its connection is lost, or has made the
    one that it was making.
    """
    return any(f"[{pid}]" in line for line in news(worker)[before:])


def _sessions(address: str) -> int:
    """Return how many clients from there are logged in.

    One that was about to log in holds nothing. The server waits for it until ``authentication_timeout``.
    """
    query = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = %s AND usesysid IS NOT NULL"
    return int(sql(query, address))


def _go_on(stage: Stage, held: list[Run], file: Path) -> bool:
    """Return whether the jobs of all these runs have run elsewhere, and let them end there."""
    others = [other for run in held if (other := stage.run_after(run))]
    for other in others:
        _go(file, other)
    return len(others) == len(held)


def _far_worker(stage: Stage) -> Command:
    """Return the command in the other place, and start it there if need be."""
    world: Far = stage.world
    if world.worker is None:
        stage.env |= with_database(HOST=world.place.here)
        world.worker = stage.start(through=world.place.through)
        del stage.env["TEST_DATABASES"]
        stage.all_up()
    return world.worker


def _occupy(stage: Stage, worker: Command, file: Path, task: Task[[int, str], None]) -> Run:
    """Let this worker run a job that waits for a file."""
    while True:
        number = stage.load.enqueue(lambda number: task.using(priority=10).bind(number, str(file)))
        run = stage.begun(number)
        if run.parent == worker.process.pid:
            return run
        _go(file, run)


def _go(file: Path, run: Run) -> None:
    file.with_name(f"{file.name}-{run.lease}").touch()


SLOW, RESET, FORGOTTEN = "slow network", "reset connections", "connections forgotten by a proxy"


class Proxied(NamedTuple):
    """Two proxies before a server, that of the web processes and that of the workers, whose environment has
    its address.
    """

    web: Proxy
    workers: Proxy
    env: dict[str, str]


@contextmanager
def behind_proxies(folder: Path) -> Iterator[Proxied]:
    """Run a server that everybody reaches through proxies."""
    with server_of_its_own(folder) as server:
        address = server.database["HOST"], int(server.database["PORT"])
        with (
            proxy(*address) as web,
            proxy(*address) as workers,
            at_database(**{**server.database, "PORT": web.port}),
        ):
            yield Proxied(web, workers, with_database(PORT=workers.port))


def slow(stage: Stage) -> None:
    """Let each packet be late for some seconds."""
    world: Proxied = stage.world
    stage.occupy(0.5)
    with stage.havoc.fault(SLOW, explains=False):
        world.web.delay = world.workers.delay = (0.05, 0.3)
        time.sleep(3.0)
        world.web.delay = world.workers.delay = None


def reset(stage: Stage) -> None:
    """Reset or half close connections at random."""
    world: Proxied = stage.world
    stage.occupy(3.0, tasks.atomic_effect)
    with stage.havoc.fault(RESET):
        for _ in range(12):
            links = sorted(world.web.links | world.workers.links, key=id)
            for link in stage.choice.sample(links, min(len(links), stage.choice.randint(1, 4))):
                stage.choice.choice([link.reset, link.close_one_way])()
            time.sleep(stage.choice.uniform(0.0, 0.2))
    connections.close_all()


def forget(stage: Stage) -> None:
    """Forget the connections of the workers, supervisors and jobs, until the first two have noticed."""
    world: Proxied = stage.world
    stage.occupy()
    stage.occupy(0.5, tasks.atomic_effect)
    before = {command: len(news(command)) for command in stage.commands}
    pids = stage.at_work()
    with stage.havoc.fault(FORGOTTEN):
        links = world.workers.forget()
        stage.measure(
            {
                LISTENER_FOUND: lambda: all(
                    any(found(command, pid, before[command]) for command in stage.commands) for pid in pids
                ),
                HEARTBEAT_FOUND: lambda: all(
                    found(command, command.process.pid, before[command]) for command in stage.commands
                ),
            },
            seconds=120.0,
        )
        for link in links:  # the proxy closes what has not been used for a while: the jobs notice that
            link.reset()


SCENARIOS = [
    Scenario(
        name="a worker cut off",
        promises=("overlap-one-report", "dead-machine", "vanished-peer"),
        faults=(cut_off,),
        commands=1,
        settings={"LEASE": LEASE, "HEARTBEAT": 1.0},
        world=with_a_far_place,
        lacks=lacks_far_place,
        within={
            "cut off": LEASE + 5.0,
            LISTENER_FOUND: 30.0,
            HEARTBEAT_FOUND: 30.0,
            SESSIONS_ENDED: LEASE + 5.0,
        },
    ),
    Scenario(
        name="a bad network",
        promises=("forgotten-connection",),
        faults=(slow, reset, forget),
        # Longer than the deadline of an answer: after it, other jobs would run elsewhere as well.
        settings={"LEASE": 120.0, **SLOW_HEARTBEAT},
        world=behind_proxies,
        check=only_what_was_lost_ran_again,
        within={SLOW: 3.0, RESET: 3.0, FORGOTTEN: 5.0, LISTENER_FOUND: 90.0, HEARTBEAT_FOUND: 90.0},
    ),
]
