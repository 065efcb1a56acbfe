"""A worker's connection gives up an answer that will never come, and waits for one that only takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from socket import socketpair
from threading import Thread, Timer
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.errors import QueryCanceled

from django_pgqueue.postgres import liveness, session
from django_pgqueue.postgres.liveness import SilentServerError
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.executor import connections as connections_module
from django_pgqueue.worker.executor.connections import keep_open
from tests.support.databases import alias, roles
from tests.support.poolers import pgbouncer
from tests.support.proxies import Proxy, proxy
from tests.support.sessions import open_raw
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 0.3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "patience", lambda: SOON)
    monkeypatch.setattr(liveness, "PATIENCE_OTHER", 1.0)


@pytest.fixture
def between() -> Iterator[Proxy]:
    settings = connections["default"].settings_dict
    with proxy(settings["HOST"], int(settings["PORT"])) as made:
        yield made


@pytest.fixture
def worker(between: Proxy) -> Iterator[Session]:
    """A session through the proxy."""
    address = {"HOST": "127.0.0.1", "PORT": between.port}
    with alias("proxied", opened=False, **address) as name, closing(connect(name)) as opened:
        yield opened


def lives(pid: int) -> bool:
    with open_raw() as direct:
        return bool(direct.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchall())


def state(pid: int) -> str:
    with open_raw() as direct:
        ((found,),) = direct.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]).fetchall()
        return str(found)


@pytest.mark.parametrize("statements", [1, 2])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_connection_that_a_proxy_has_forgotten(
    between: Proxy, worker: Session, statements: int, is_prepared: bool
) -> None:
    for _ in range(3 * is_prepared):
        worker.run(*[("SELECT 1", None)] * statements)
    pid = worker.connection.info.backend_pid
    (link,) = between.forget(b"pgqueue worker")
    began = time.monotonic()
    with pytest.raises(SilentServerError, match="the session is not at work"):
        worker.run(*[("SELECT 1", None)] * statements)
    assert time.monotonic() - began < 6.0
    assert worker.connection.closed
    assert link.is_forgotten
    until(lambda: not lives(pid), what="its session and its locks are gone")


def test_an_answer_that_is_read_while_something_else_is_done(between: Proxy, worker: Session) -> None:
    between.forget()
    with pytest.raises(SilentServerError):
        worker.run_beside(lambda: None, ("SELECT 1", None))
    assert worker.connection.closed


def test_a_statement_that_takes_long_is_waited_for(worker: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    ask = worker.connection.ask  # type: ignore[attr-defined]

    with open_raw() as other:

        def remember(socket: int) -> bool:
            asked.append(ask(socket))
            if len(asked) == 2:
                other.execute("SELECT pg_cancel_backend(%s)", [worker.connection.info.backend_pid])
            return asked[-1]

        monkeypatch.setattr(worker.connection, "ask", remember)
        with pytest.raises(QueryCanceled):
            worker.value("SELECT pg_sleep(60)")
    assert len(asked) >= 2
    assert all(asked)


def test_a_statement_that_waits_for_a_lock_is_waited_for(worker: Session) -> None:
    with open_raw() as other:
        other.execute("SELECT pg_advisory_lock(24)")
        timer = Timer(4 * SOON, lambda: other.execute("SELECT pg_advisory_unlock(24)"))
        timer.start()
        assert worker.rows("SELECT pg_advisory_xact_lock(24)")
        timer.join()


def test_if_nobody_can_be_asked_the_connection_is_given_up(between: Proxy, worker: Session) -> None:
    between.close_door()
    between.forget()
    with pytest.raises(SilentServerError):
        worker.rows("SELECT 1")


def test_if_the_other_connection_is_forgotten_too(between: Proxy, worker: Session) -> None:
    """The proxy forgets whatever comes: the other connection is not even opened."""
    between.forgets_all = True
    between.forget()
    began = time.monotonic()
    with pytest.raises(SilentServerError):
        worker.rows("SELECT 1")
    assert time.monotonic() - began < 6.0


def test_behind_a_pooler_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement may wait for a free connection of the pooler."""

    def refuse(*given: Any) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(liveness, "_on_another", refuse)
    with (
        pgbouncer() as pooler,
        alias("pooled", opened=False, **pooler.address()) as name,
        closing(connect(name)) as opened,
    ):
        assert opened.value("SELECT 1 FROM pg_sleep(%s)", (3 * SOON,)) == 1
        opened.connection.patience = SOON  # type: ignore[attr-defined]
        with pytest.raises(SilentServerError):
            opened.value("SELECT 1 FROM pg_sleep(%s)", (5,))


@pytest.fixture
def of_tasks() -> Iterator[None]:
    """New connections are those of tasks."""
    keep_open()
    yield
    connection_created.disconnect(dispatch_uid=connections_module.__name__)


@pytest.fixture
def task(between: Proxy, of_tasks: None) -> Iterator[BaseDatabaseWrapper]:
    """A connection of a task through the proxy."""
    address = {"HOST": "127.0.0.1", "PORT": between.port}
    with alias("proxied", opened=False, **address) as name:
        connections[name].connect()
        yield connections[name]


def test_a_task_does_not_wait_for_a_session_that_is_not_at_work(
    between: Proxy, task: BaseDatabaseWrapper
) -> None:
    raw: Any = task.connection
    pid = raw.info.backend_pid
    task.cursor().execute("BEGIN")
    between.forget()
    with pytest.raises(OperationalError, match="not at work"):
        task.cursor().execute("SELECT 1")
    assert raw.closed
    until(lambda: not lives(pid), what="its session and its locks are gone")


def test_a_task_waits_for_a_query_that_takes_long(between: Proxy, task: BaseDatabaseWrapper) -> None:
    with task.cursor() as cursor:
        cursor.execute("SELECT 'done' FROM pg_sleep(%s)", [4 * SOON])
        assert cursor.fetchone() == ("done",)


def test_a_session_that_has_just_sent_its_answer_is_at_work(
    worker: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer arrives after the question. If none arrives, the session is ended."""
    pid = worker.connection.info.backend_pid
    ask = worker.connection.ask  # type: ignore[attr-defined]
    here, there = socketpair()
    with here, there:
        timer = Timer(0.3, there.send, [b"the answer"])
        timer.start()
        assert ask(here.fileno()) is True
        timer.join()
        assert lives(pid)
        here.recv(100)
        monkeypatch.setattr(liveness, "ON_ITS_WAY", 0.0)
        assert ask(here.fileno()) is False
    until(lambda: not lives(pid), what="its session is ended")


def test_a_session_that_begins_to_work_again_is_at_work(
    worker: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was idle for a moment, between two statements of a pipeline."""
    pid = worker.connection.info.backend_pid
    ask = worker.connection.ask  # type: ignore[attr-defined]
    begun: list[Thread] = []

    def nothing(socket: int, seconds: float) -> bool:
        begun.append(Thread(target=worker.value, args=["SELECT 1 FROM pg_sleep(1)"]))
        begun[0].start()
        until(lambda: state(pid) == "active")
        return False

    monkeypatch.setattr(liveness, "_is_readable", nothing)
    assert ask(worker.connection.fileno()) is True
    begun[0].join()
    assert lives(pid)


def test_a_connection_that_is_forgotten_while_it_is_set_up(
    between: Proxy, worker: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known yet whether there is a pooler, which may let a statement wait."""
    enter = session._enter

    def forget(*given: Any, **more: Any) -> Session:
        between.forget()
        return enter(*given, **more)

    monkeypatch.setattr(session, "_enter", forget)
    with pytest.raises(SilentServerError):
        connect("proxied")


def test_while_nobody_is_answered_a_new_connection_waits(between: Proxy, worker: Session) -> None:
    connection: Any = worker.connection
    parameters, _ = connection.ask.args
    connection.not_known_yet(parameters)
    between.delay = (1.5, 1.5)
    assert connection.ask(connection.fileno()) is True
    between.delay = None
    assert connection.ask(connection.fileno()) is False


def test_another_session_with_the_same_number_is_left_alone(worker: Session) -> None:
    """Ours has ended, and the server has given its number to somebody else."""
    ask = worker.connection.ask  # type: ignore[attr-defined]
    parameters, known_by = ask.args
    with closing(connect("proxied")) as later:
        before = known_by._replace(pid=later.connection.info.backend_pid)
        assert liveness._is_at_work(parameters, before, worker.connection.fileno()) is False
        assert later.value("SELECT 1") == 1


def test_another_server_is_not_believed(worker: Session) -> None:
    """The address stands for several servers, such as the replicas behind a load balancer."""
    parameters, known_by = worker.connection.ask.args  # type: ignore[attr-defined]
    elsewhere = known_by._replace(server="1.5")
    assert liveness._is_at_work(parameters, elsewhere, worker.connection.fileno()) is None
    assert worker.value("SELECT 1") == 1


@pytest.mark.usefixtures("of_tasks")
@pytest.mark.parametrize("way", ["assume_role", "options", "role"])
def test_a_statement_of_an_assumed_role_that_takes_long_is_waited_for(between: Proxy, way: str) -> None:
    """The role does not see the sessions of the one that has logged in."""
    with roles("owner", "login") as (owner, login), open_raw() as admin:
        admin.execute(f"ALTER ROLE {login} LOGIN PASSWORD 'x'; GRANT {owner} TO {login}")
        options = {"assume_role": {"assume_role": owner}, "options": {"options": f"-c role={owner}"}}
        if way == "role":
            admin.execute(f"ALTER ROLE {login} SET role = {owner}")
        address = {"HOST": "127.0.0.1", "PORT": between.port, "USER": login, "PASSWORD": "x"}
        with alias("as_role", opened=False, OPTIONS=options.get(way, {}), **address) as name:
            connections[name].connect()
            with closing(connect(name)) as opened, connections[name].cursor() as cursor:
                assert opened.value("SELECT current_user::text FROM pg_sleep(1)") == owner
                assert opened.connection.ask(opened.connection.fileno()) is False  # type: ignore[attr-defined]
                cursor.execute("SELECT current_user::text FROM pg_sleep(1)")
                assert cursor.fetchone() == (owner,)
                between.forget()
                with pytest.raises(OperationalError, match="not at work"):
                    cursor.execute("SELECT 1")


def test_a_task_waits_as_long_as_nobody_can_be_asked(between: Proxy, task: BaseDatabaseWrapper) -> None:
    between.close_door()
    with task.cursor() as cursor:
        cursor.execute("SELECT 'done' FROM pg_sleep(%s)", [4 * SOON])
        assert cursor.fetchone() == ("done",)


def test_a_task_that_waits_for_notifications_is_left_alone(task: BaseDatabaseWrapper) -> None:
    raw: Any = task.connection
    raw.execute("LISTEN somebody")
    assert list(raw.notifies(timeout=4 * SOON)) == []
    assert not raw.closed


@pytest.mark.parametrize(("lease", "seconds"), [(30.0, 12.0), (8.0, 3.2), (3600.0, 12.0), (1.0, 1.0)])
def test_how_long_it_is_patient(
    monkeypatch: pytest.MonkeyPatch, settings: Any, lease: float, seconds: float
) -> None:
    monkeypatch.undo()
    settings.PGQUEUE = {"LEASE": lease, "HEARTBEAT": 0.3}
    assert liveness.patience() == pytest.approx(seconds)


def test_other_errors_are_those_of_the_server(worker: Session) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        worker.rows("SELECT 1 / 0")
    assert worker.value("SELECT 1") == 1
