"""A worker connects again while the server still works on what its last session has sent."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from django_pgqueue.postgres.session import connect as connect_worker
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration, requeue_strangers
from tests.support.jobs import add, claim, live
from tests.support.sessions import Connect, start

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = 7


def test_a_claim_of_the_last_session_is_not_committed_after_the_new_one_has_looked(connect: Connect) -> None:
    """Its answer would reach nobody, and a worker that is alive would keep the lease of the job forever."""
    setup, lock = connect(autocommit=True), connect()
    (job,) = add(setup)
    registration = Registration(WorkerOptions(), WORKER, 1)
    with closing(connect_worker("default")) as old:
        registration.register(old)
        old.connection.execute("SET lock_timeout TO '15s'")
        lock.execute("LOCK TABLE pgqueue_job IN EXCLUSIVE MODE")
        claimed = start(old.connection, claim, worker=WORKER).blocked()
        with closing(connect_worker("default")) as new:
            registration.register(new)
            requeue_strangers(new, WORKER, [])
            lock.rollback()
            with pytest.raises(psycopg.errors.AdminShutdown):
                claimed.result()
            assert live(setup) == {job: "pending"}
            assert new.holds_lock
