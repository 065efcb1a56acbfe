"""A role that may connect, and nothing else. It can send notifications and take advisory locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue import cancel, enqueue
from tests.app import worker_tasks as tasks
from tests.support.databases import roles
from tests.support.jobs import value
from tests.support.sessions import Connection, open_raw
from tests.support.workers import fresh, until, working

from .conftest import PASSWORD, Login

#: What workers send to each other, and what they do not.
WORDS = [
    "", "cancel", "cancel ", "cancel ²", "cancel -1", "cancel x", "cancel 1 2", "cancel 9223372036854775808",
    "cancel " + "9" * 5_000, "pause", "pause pause", "drain", "drain stop", "wake", "wake default",
    "proof", "proof 1 1", "proof " + "9" * 5_000, "\x01\x7f", "€" * 2_000,
]  # fmt: skip


@pytest.fixture
def stranger(transactional_db: None, login: Login) -> Iterator[Connection]:
    """A session of a role without any grant."""
    with roles("stranger") as (name,), open_raw() as owner:
        owner.execute(f"ALTER ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
        session = login(name)
        yield session
        session.close()


@pytest.fixture(autouse=True)
def _clean_gates() -> Iterator[None]:
    tasks.reset()
    yield
    tasks.reset()


def test_no_notification_harms_a_worker_or_its_jobs(stranger: Connection, settings: Any) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    leaf = value(stranger, "SELECT oid FROM pg_class WHERE relname = 'pgqueue_job_live' AND relkind = 'r'")
    jobs = [enqueue(tasks.asleep, "async"), enqueue(tasks.stoppable, "sync")]
    with working() as worker:
        assert tasks.gate("async runs").wait(tasks.DEADLINE)
        assert tasks.gate("sync runs").wait(tasks.DEADLINE)
        for word in [*WORDS, *(f"cancel {job.pk}" for job in jobs)]:
            stranger.execute("SELECT pg_notify(%s, %s)", (f"pgqueue_{leaf}", word))
        after = enqueue(tasks.noop)  # its notification comes after all of them
        until(lambda: fresh(after).status == "done")
        until(lambda: not worker.producer._cancel_requests._named)
        assert [fresh(job).status for job in jobs] == ["running", "running"]
        assert tasks.SEEN == []
        assert cancel(jobs[0]) == cancel(jobs[1]) == 1
        until(lambda: [fresh(job).status for job in jobs] == ["cancelled", "cancelled"])
