"""Races between workers that report failures, maintenance that groups them, and a user who mutes a group."""

from __future__ import annotations

import pytest

from django_pgqueue.models import FailureGroup
from tests.support.failures import fold, note
from tests.support.jobs import add, claim, finish
from tests.support.sessions import Connect, Connection, start
from tests.support.statistics import forget

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = '{"class": "app.Broken"}'
KNOWN = ["f"]


def mute(connection: Connection) -> int:
    muted = "UPDATE pgqueue_failure_group SET muted_at = now() WHERE fingerprint = 'f' AND muted_at IS NULL"
    return connection.execute(muted).rowcount


def report(connection: Connection, job: int) -> list[int]:
    return finish(connection, [job], "failed", error=ERROR, fingerprint="f")


def test_failures_of_one_group_are_reported_side_by_side(connect: Connect) -> None:
    """No report waits for another one, nor for maintenance, which holds the row of the group."""
    one, other, maintenance = connect(), connect(autocommit=True), connect()
    note(other)
    assert fold(maintenance) == 1
    first, second = add(other, 2)
    assert len(claim(other)) == 2
    assert report(one, first) == [first]
    assert start(other, report, second).result() == [second]
    one.commit()
    maintenance.commit()
    assert fold(other) == 2
    assert FailureGroup.objects.get().failed == 3


def test_a_report_that_is_rolled_back_leaves_no_failure(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    [job] = add(other)
    claim(other)
    report(one, job)
    one.rollback()
    assert fold(other) == 0
    assert report(other, job) == [job]
    assert fold(other) == 1


def test_one_supervisor_groups_failures_at_a_time_and_none_waits(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    for fingerprint in ("f", "g"):
        note(other, fingerprint)
    assert fold(one, limit=1) == 1
    assert start(other, fold).result() == 0
    assert start(other, forget).result() == 0
    one.commit()
    assert fold(other) == 1


def test_a_group_is_muted_while_a_change_arrives(connect: Connect) -> None:
    """Whoever comes second waits: a change that came before the mute is known to it, a later one ends it."""
    one, maintenance = connect(), connect(autocommit=True)
    note(maintenance)
    fold(maintenance)
    assert mute(one) == 1
    note(maintenance, version="v2")
    folding = start(maintenance, fold).blocked()
    one.commit()
    assert folding.result() == 1
    assert FailureGroup.objects.get().muted_at is None

    maintenance.autocommit = False
    note(maintenance, version="v3")
    fold(maintenance)
    muting = start(one, mute).blocked()
    maintenance.commit()
    assert muting.result() == 1
    one.commit()
    assert FailureGroup.objects.get().muted_at is not None


def test_a_group_that_somebody_mutes_is_not_forgotten_in_between(connect: Connect) -> None:
    one, maintenance = connect(), connect(autocommit=True)
    note(maintenance, ago="100 days")
    fold(maintenance)
    mute(one)
    assert start(maintenance, forget).result() == 3, "only the counts of quarters, hours and days"
    one.commit()
    assert FailureGroup.objects.get().muted_at is not None
    forget(maintenance)
    assert not FailureGroup.objects.exists()
