"""The primary dies under load, and its standby is promoted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.core.management import call_command
from django.db import connections

from tests.support.databases import alias
from tests.support.servers import Pair, primary_and_standby

from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import at_database
from .server import ended, in_transaction, outside_a_transaction, reported

__all__ = ["SCENARIOS"]

PROMOTED = "promoted standby"


@contextmanager
def with_a_standby(folder: Path) -> Iterator[Pair]:
    """Run a primary that waits for its standby at each durable commit. The DSN names both servers."""
    with primary_and_standby() as pair:
        with alias("pair", **pair.primary.address()) as name:
            call_command("migrate", database=name, run_syncdb=True, verbosity=0)
        pair.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        pair.primary.ask("SELECT pg_reload_conf()")
        pair.catch_up()
        with at_database(**pair.address()):
            yield pair


def fail_over(stage: Stage) -> None:
    """Let the primary crash, and promote the standby. This can happen only once."""
    pair: Pair = stage.world
    if not pair.standby.ask("SELECT pg_is_in_recovery()")[0]:
        time.sleep(1.0)
        return
    run = outside_a_transaction(stage)
    in_transaction(stage)
    with stage.havoc.fault(PROMOTED):
        pair.primary.crash()
        ended(stage, run)
        pair.promote()
    connections.close_all()
    reported(stage, run)
    stage.all_up()


SCENARIOS = [
    Scenario(
        name="failover",
        promises=("server-restart", "synchronous-standby"),
        expects="""
            When the primary dies and its synchronous standby is promoted, the same processes connect to the
            new primary by their DSN of several hosts. New jobs are done within 3 seconds of the promotion. No
            committed job is lost, and running jobs are reported there. Claims that the standby did not have
            are made again.
        """,
        faults=(fail_over,),
        world=with_a_standby,
        within={PROMOTED: 3.0},
    ),
]
