"""A worker does not work on a standby but waits: when the command starts."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_pgqueue import cancel, edit, why
from django_pgqueue.models import Job
from tests.support.commands import SLOW, Command, databases
from tests.support.databases import alias, migrate
from tests.support.servers import Pair, primary_and_standby
from tests.support.workers import until

Start = Callable[..., Command]


@pytest.fixture
def pair(transactional_db: None) -> Iterator[Pair]:
    """A migrated primary and its standby, apart from the databases of the run."""
    with primary_and_standby() as pair:
        with alias("pair", **pair.primary.address()) as name:
            migrate(name)
        pair.catch_up()
        yield pair


def on(address: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a command with this default database."""
    given = databases()
    given["default"].update(address)
    return {"TEST_DATABASES": json.dumps(given)}


def enqueue(pair: Pair) -> int:
    """Enqueue a job on the current primary."""
    server = pair.standby if pair.standby.ask("SELECT pg_is_in_recovery()") == (False,) else pair.primary
    job: int = server.ask("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')")[0]
    return job


def done(pair: Pair, job: int) -> None:
    """Wait until the job is done on the new primary."""
    status = "SELECT status FROM pgqueue_job WHERE id = %s"
    until(lambda: pair.standby.ask(status, [job]) == ("done",), seconds=SLOW, what="the job to be done")


@pytest.mark.parametrize("by_the_driver", [False, True], ids=["refused by the worker", "by the driver"])
@pytest.mark.promise("waits-for-promotion")
def test_a_worker_that_starts_at_a_standby_waits_for_its_promotion(
    start: Start, pair: Pair, by_the_driver: bool
) -> None:
    address = pair.standby.address()
    if by_the_driver:
        address["OPTIONS"] = {"target_session_attrs": "read-write"}
    stopped = start(env=on(address))
    stopped.logged("this server is a standby: a worker needs the primary")
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 0, stopped.log

    job = enqueue(pair)
    pair.catch_up()
    command = start(env=on(address))
    command.logged("this server is a standby: a worker needs the primary")
    pair.primary.crash()
    pair.promote()
    done(pair, job)
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log
    assert command.log.count("this server is a standby") == 1
    assert "Traceback" not in command.log
    assert pair.standby.ask("SELECT 1 FROM pgqueue_worker") is None


def test_a_standby_that_goes_away_while_it_is_waited_for_is_waited_for(start: Start, pair: Pair) -> None:
    address = pair.standby.address()
    command = start(env=on(address))
    command.logged("this server is a standby: a worker needs the primary")
    pair.standby.stop()
    command.logged("no connection yet: connection")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log


class ReadsFromTheStandby:
    """A router that ignores the row."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "standby"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "primary"


def test_a_job_read_from_a_standby_is_changed_on_its_primary(pair: Pair, settings: Any) -> None:
    addresses = pair.primary.address(), pair.standby.address()
    with alias("primary", **addresses[0]), alias("standby", **addresses[1]):
        settings.DATABASE_ROUTERS = [ReadsFromTheStandby()]
        number = enqueue(pair)
        pair.catch_up()
        job = Job.objects.get(pk=number)
        assert job._state.db == "standby"
        assert edit(job, priority=7) == 1
        assert why(job).database == "primary"
        assert cancel(job) == 1
        assert job.join(timeout=SLOW).status == "cancelled"
