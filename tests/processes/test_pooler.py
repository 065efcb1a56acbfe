"""A real worker behind a real pooler in transaction mode polls, and leaves nothing in the session."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from django_pgqueue import enqueue
from tests.app import worker_tasks as tasks
from tests.support.commands import SLOW, Command, databases
from tests.support.poolers import Pooler, pgbouncer
from tests.support.sessions import open_raw
from tests.support.workers import fresh, until

Start = Callable[..., Command]

STATE = """
    SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
        (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT jsonb_object_agg(name, setting) FROM pg_settings
            WHERE name IN ('statement_timeout', 'lock_timeout', 'plan_cache_mode', 'synchronous_commit',
                'default_transaction_isolation', 'tcp_keepalives_count', 'role', 'search_path'))
"""


def state(pooler: Pooler) -> Any:
    """Return what the pooler's server session holds."""
    with pooler.connect() as client:
        return client.execute(STATE).fetchone()


@pytest.mark.promise("pooler-worker")
def test_a_worker_behind_a_pooler(start: Start) -> None:
    with pgbouncer() as pooler:
        given = databases()
        given["default"].update(pooler.address())
        command = start(env={"TEST_DATABASES": json.dumps(given)}, POLL_INTERVAL=0.2)
        (worker,) = command.workers()
        assert not worker.holds_lock
        jobs = [enqueue(tasks.backend), enqueue(tasks.add, 1), enqueue(tasks.raise_odd, "nul")]
        until(lambda: all(fresh(job).is_finished for job in jobs), seconds=SLOW)
        with open_raw(options="-c lock_timeout=0") as direct:
            nothing = direct.execute(STATE).fetchone()
        assert nothing is not None
        assert nothing[:3] == (0, 0, 0)
        assert state(pooler) == nothing

        pooler.stop()
        command.logged("no connection yet", times=2)
        pooler.start()
        command.logged("connected again", times=2)
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).is_finished, seconds=SLOW)
        assert state(pooler) == nothing
        command.send(signal.SIGTERM)
        assert command.wait() == 0, command.log
    assert command.log.count("is behind a transaction pooler: the worker polls every 0.2 s") == 1
    assert command.log.count("Traceback") == 1  # the failed job's
