"""A proxy between everybody and the server delays, resets, half closes and forgets connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connections

from tests.support.commands import databases
from tests.support.own_server import OwnServer
from tests.support.proxies import Proxy, proxy

from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import at_database, server_of_its_own
from .network import HEARTBEAT_FOUND, LISTENER_FOUND, found, news
from .server import in_transaction
from .sessions import only_atomic_jobs_ran_again

__all__ = ["SCENARIOS"]

SLOW, RESET, FORGOTTEN = "slow network", "reset connections", "connections forgotten by a proxy"


class World:
    """A server behind two proxies: that of the web processes, and that of the workers."""

    def __init__(self, server: OwnServer, web: Proxy, workers: Proxy) -> None:
        self.server = server
        self.web = web
        self.workers = workers
        given = databases()
        given["default"]["PORT"] = workers.port
        self.env = {"TEST_DATABASES": json.dumps(given)}


@contextmanager
def behind_proxies(folder: Path) -> Iterator[World]:
    """Run a server that everybody reaches through proxies."""
    with server_of_its_own(folder) as server:
        address = server.database["HOST"], int(server.database["PORT"])
        with (
            proxy(*address) as web,
            proxy(*address) as workers,
            at_database(**{**server.database, "PORT": web.port}),
        ):
            yield World(server, web, workers)


def slow(stage: Stage) -> None:
    """Let each packet be late for some seconds."""
    world: World = stage.world
    stage.occupy(0.5)
    with stage.havoc.fault(SLOW, explains=False):
        world.web.delay = world.workers.delay = (0.05, 0.3)
        time.sleep(3.0)
        world.web.delay = world.workers.delay = None
    stage.all_up()


def reset(stage: Stage) -> None:
    """Reset or half close connections at random."""
    world: World = stage.world
    in_transaction(stage)
    with stage.havoc.fault(RESET):
        for _ in range(12):
            links = sorted(world.web.links | world.workers.links, key=id)
            for link in stage.choice.sample(links, min(len(links), stage.choice.randint(1, 4))):
                stage.choice.choice([link.reset, link.close_one_way])()
            time.sleep(stage.choice.uniform(0.0, 0.2))
    connections.close_all()
    stage.all_up()


def forget(stage: Stage) -> None:
    """Forget the connections of the workers, supervisors and jobs, until the first two have noticed."""
    world: World = stage.world
    stage.occupy()
    in_transaction(stage, 0.5)
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
    stage.all_up()


SCENARIOS = [
    Scenario(
        name="a bad network",
        promises=("forgotten-connection",),
        expects="""
            A slow network only makes everything slower. If connections are reset or half closed, the
            processes connect again, and only atomic jobs whose transactions were lost run again, without an
            attempt less. If a proxy forgets all connections of the workers but acknowledges what arrives, the
            workers and supervisors notice within 90 seconds, and jobs when the proxy closes their
            connections. Atomic jobs run again, and all work on.
        """,
        faults=(slow, reset, forget),
        # Longer than the deadline of an answer: after it, other jobs would run elsewhere as well.
        settings={"LEASE": 120.0, "HEARTBEAT": 1.0},
        world=behind_proxies,
        check=only_atomic_jobs_ran_again,
        within={
            SLOW: 3.0,
            RESET: 3.0,
            FORGOTTEN: 5.0,
            LISTENER_FOUND: 90.0,
            HEARTBEAT_FOUND: 90.0,
        },
    ),
]
