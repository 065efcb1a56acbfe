"""What alerts tell, when, and that no receiver can harm the maintenance."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from django_pgqueue.alerts import Alert, alert_sent
from django_pgqueue.maintenance import alerts as module
from django_pgqueue.maintenance.alerts import AlertRounds, look, send
from django_pgqueue.models import FailureGroup, RaisedAlert, Worker
from django_pgqueue.monitoring.failures import mute
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.figures import fold, note
from tests.support.sessions import Connect, Connection, start
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)

RECEIVED: list[Alert] = []
GATE = Event()


def receive(alert: Alert) -> None:
    """A receiver."""
    RECEIVED.append(alert)


def explode(alert: Alert) -> None:
    """A receiver that raises."""
    raise RuntimeError("no mail today")


def hang(alert: Alert) -> None:
    """A receiver that does not return until the test ends."""
    GATE.wait(DEADLINE)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    RECEIVED.clear()
    GATE.clear()
    yield
    GATE.set()


def told(*kinds: str, after: timedelta = timedelta(minutes=1)) -> list[tuple[str, bool, str]]:
    """Look as if the last look were some time ago, and return what there is to tell of these kinds, or of
    all. The workers send their heartbeats, so that none falls silent during a slow test.
    """
    Worker.objects.update(heartbeat_at=Now())
    RaisedAlert.objects.update(over_since=F("over_since") - after)
    RaisedAlert.objects.filter(kind="look").update(raised_at=timezone.now() - after)
    found = [alert for alert in look("default") if not kinds or alert.kind in kinds]
    return [(alert.kind, alert.is_over, alert.text) for alert in found]


@pytest.mark.promise("alert-at-most-once")
def test_a_problem_is_reported_once_when_it_comes_and_once_when_it_has_ended() -> None:
    worker = WorkerFactory.create()
    assert told() == []
    job = JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(minutes=6))
    [(kind, is_over, text)] = told()
    assert (kind, is_over) == ("age", False)
    assert text.startswith("mail: the oldest ready job waits for 6 min")
    assert told() == []
    worker.delete()
    assert [kind for kind, *_ in told()] == ["no_worker"]
    WorkerFactory.create()
    type(job).objects.filter(pk=job.pk).update(status="running")
    assert told() == [], "it is over, but it may come back"
    assert told(after=timedelta(minutes=4)) == []
    assert sorted(told()) == [
        ("age", True, f"over: {text}"),
        ("no_worker", True, "over: no worker claims jobs"),
    ]
    assert told() == []


def test_a_problem_that_comes_and_goes_is_told_once() -> None:
    """As long as it comes back within the time, nobody hears of it again, neither that it is over."""
    worker = WorkerFactory.create()
    beats = type(worker).objects.filter(pk=worker.pk)
    told()
    beats.update(state="draining")
    assert [kind for kind, *_ in told()] == ["no_worker"]
    for state in 4 * ("running", "draining"):
        beats.update(state=state)
        assert told(after=timedelta(minutes=3)) == []
    beats.update(state="running")
    assert told() == []
    assert [(kind, is_over) for kind, is_over, _ in told(after=timedelta(minutes=5))] == [("no_worker", True)]
    beats.update(state="draining")
    assert [(kind, is_over) for kind, is_over, _ in told()] == [("no_worker", False)], "told again, later"


def test_what_health_does_not_look_for_is_not_over(settings: Any) -> None:
    """Without workers, health says this alone; the queue that lacked one has not got it since."""
    settings.PGQUEUE = {"HEALTH": {"*": {"workers": 2}}, "ALERTS_CLEAR_AFTER": 0}
    first, second = WorkerFactory.create_batch(2, queues=["mail"])
    told()
    JobFactory.create(queue_name="slow")
    assert [kind for kind, *_ in told()] == ["unserved"]
    first.delete()
    assert [(kind, is_over) for kind, is_over, _ in told()] == [("few_workers", False)]
    second.delete()
    assert [(kind, is_over) for kind, is_over, _ in told()] == [("no_worker", False)]
    WorkerFactory.create_batch(2)
    assert sorted((kind, is_over) for kind, is_over, _ in told()) == [
        ("few_workers", True), ("no_worker", True), ("unserved", True),
    ]  # fmt: skip


def test_failures_are_told_by_group(one: Connection) -> None:
    note(one, "before")
    fold(one)
    kinds = ("new_failure", "job_failed")
    assert told(*kinds) == [], "what was there before the first look"
    down = {"error_class": "shop.Down", "message": "no answer"}
    note(one, "f", failed=2, retried=3, task_path="shop.tasks.send", **down)
    fold(one)
    error = "shop.Down: no answer (shop.tasks.send)"
    assert told(*kinds) == [
        ("new_failure", False, f"new failure: {error}"),
        ("job_failed", False, f"2 jobs failed: {error}"),
    ]
    assert told(*kinds) == []
    note(one, "f", failed=0, retried=9)
    fold(one)
    assert told(*kinds) == [], "its jobs run again"
    note(one, "f", job_id=77)
    fold(one)
    RaisedAlert.objects.filter(kind="look").update(raised_at=timezone.now() - timedelta(minutes=1))
    [alert] = [alert for alert in look("default") if alert.kind == "job_failed"]
    assert (alert.fingerprint, alert.job_id, alert.count) == ("f", 77, 1)
    assert alert.tasks == ("shop.tasks.send", "tests.app.tasks.noop")
    assert str(alert) == alert.text


def test_a_muted_group_is_told_when_it_changes(one: Connection) -> None:
    kinds = ("new_failure", "job_failed")
    told()
    note(one)
    fold(one)
    mute("default", "f", "")
    assert told(*kinds) == []
    note(one, failed=5)
    fold(one)
    assert told(*kinds) == []
    mute("default", "f", None)
    assert told(*kinds) == [], "nothing new has failed since"
    mute("default", "f", "")
    note(one, version="v2")
    fold(one)
    assert [kind for kind, *_ in told(*kinds)] == ["new_failure", "job_failed"]


@pytest.mark.promise("alert-old-failures")
def test_after_a_long_pause_old_failures_are_not_reported(one: Connection) -> None:
    told()
    RaisedAlert.objects.filter(kind="look").update(raised_at=timezone.now() - timedelta(hours=2))
    note(one)
    fold(one)
    assert all(not alert.fingerprint for alert in look("default"))
    assert not FailureGroup.objects.filter(is_news=True).exists()


@pytest.mark.promise("alert-once")
def test_one_supervisor_looks_at_a_time(connect: Connect) -> None:
    """The others neither wait nor tell the same, and none looks again too soon."""
    other = connect()
    other.execute("SELECT _pgqueue_on_duty('alerts')")
    assert look("default") == []
    assert not RaisedAlert.objects.exists()
    other.rollback()
    assert [alert.kind for alert in look("default")] == ["no_worker"]
    RaisedAlert.objects.exclude(kind="look").delete()
    assert look("default") == []


def _look() -> list[str]:
    try:
        return [f"{alert.kind} {alert.is_over}" for alert in look("default")]
    finally:
        connections.close_all()


@pytest.mark.promise("alert-once")
def test_of_two_supervisors_that_look_at_once_one_reports_that_it_has_ended(connect: Connect) -> None:
    """Both would find the problem gone for long enough, before one of them has deleted it."""
    long_ago = timezone.now() - timedelta(hours=1)
    WorkerFactory.create()
    RaisedAlert.objects.create(kind="look", raised_at=timezone.now() - timedelta(minutes=1))
    RaisedAlert.objects.create(kind="no_worker", raised_at=long_ago, over_since=long_ago)
    holder = connect()
    holder.execute("SELECT FROM pgqueue_alert WHERE kind = 'no_worker' FOR UPDATE")
    observer = connect(autocommit=True)

    def blocked() -> Any:
        return observer.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}'"
            " AND datname = current_database()"
        ).fetchone()

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(_look)
        until(lambda: blocked() == (1,))
        other = threads.submit(_look)
        try:
            until(lambda: other.done() or blocked() == (2,))
        finally:
            holder.rollback()
        assert one.result(DEADLINE) + other.result(DEADLINE) == ["no_worker True"]
    assert _look() == []


@committed
def test_failures_that_are_grouped_at_this_moment_are_told_the_next_time(
    connect: Connect, one: Connection
) -> None:
    maintenance = connect()
    told()
    for connection in (one, maintenance):
        note(one)
        fold(connection)
    query = "SELECT count(*) FROM _pgqueue_tell_failures(10)"
    ask: Any = lambda connection: connection.execute(query).fetchone()  # noqa: E731
    assert start(one, ask).result() == (0,)
    maintenance.commit()
    assert [kind for kind, *_ in told("new_failure", "job_failed")] == ["new_failure", "job_failed"]


def test_a_database_that_does_not_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kind for kind, *_ in told()] == ["no_worker"]

    def broken(*_: Any) -> Any:
        raise OperationalError

    monkeypatch.setattr("django_pgqueue.monitoring.health.depths", broken)
    assert told() == []
    assert RaisedAlert.objects.filter(kind="no_worker").exists()


def alert() -> Alert:
    return Alert(kind="age", database="default", text="late", at=timezone.now())


@pytest.mark.promise("alert-receivers")
def test_a_receiver_that_raises_does_not_keep_alerts_from_others(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = "tests.maintenance.test_alerts"
    settings.PGQUEUE = {"ALERTS": [f"{path}.explode", f"{path}.missing", f"{path}.receive"]}

    def by_signal(alert: Alert, **_: Any) -> None:
        explode(alert)

    alert_sent.connect(by_signal)
    try:
        send([alert(), alert()])
    finally:
        alert_sent.disconnect(by_signal)
    assert len(RECEIVED) == 2
    text = caplog.text
    assert text.count("RuntimeError: no mail today") == 4
    assert text.count("cannot be imported") == 2


@committed
@pytest.mark.promise("alert-receivers")
def test_a_receiver_that_hangs_holds_up_nothing(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PGQUEUE = {"ALERTS": "tests.maintenance.test_alerts.hang"}
    rounds = AlertRounds("default")
    rounds.run(1.0)
    assert vars(rounds)["_thread"] is None, "its own workers are not registered yet"
    later = rounds.next_round + 1
    rounds.run(later)
    assert rounds._thread is not None
    assert rounds._thread.is_alive()
    rounds.run(later + 1)
    assert not caplog.records, "it is not due"
    rounds.run(later + 60)
    assert "has not returned yet" in caplog.text
    GATE.set()
    rounds._thread.join(DEADLINE)
    assert RaisedAlert.objects.filter(kind="no_worker").exists()


@committed
def test_nobody_looks_if_nobody_listens_and_errors_of_the_database_are_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(alias: str) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(module, "Thread", None)
    rounds = AlertRounds("default")
    rounds.run(1.0)
    rounds.run(rounds.next_round + 1)
    assert rounds.next_round > 40
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "look", broken)
    module._in_thread("default")
    assert caplog.messages == ["alerts: the database cannot be read: gone"]


def test_the_text_of_an_alert_is_one_line_whatever_an_error_says(one: Connection) -> None:
    """A line break in the subject of a mail is refused by Django, and nobody would hear of the failure."""
    look("default")
    message = "no relation\r\nLINE 1: SELECT\x85\u2028\tx"
    note(one, message=message, error_class="shop.Down\nBcc: all@example.com")
    fold(one)
    texts = [text for *_, text in told("new_failure", "job_failed")]
    assert len(texts) == 2
    for text in texts:
        assert "shop.Down Bcc: all@example.com: no relation LINE 1: SELECT x" in text
        assert text.isprintable()
