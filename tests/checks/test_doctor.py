"""The doctor: each fault is staged, and it finds it and says what helps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from django_pgqueue import Unique, enqueue, pause, task
from django_pgqueue.checks import doctor
from django_pgqueue.checks.doctor import examine
from django_pgqueue.maintenance import reindex
from django_pgqueue.monitoring import database
from django_pgqueue.postgres.session import connect as open_session
from tests.admin.helpers import body
from tests.app.tasks import noop
from tests.support import schedules
from tests.support.databases import alias, roles
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.jobs import sql
from tests.support.sessions import Connect, open_raw, start

OF_THE_SERVER = {"autovacuum", "track_counts", "fsync", "full_page_writes"}
_SETTINGS = doctor._SETTINGS

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def found(code: str) -> str:
    """Return what is wrong in one examination, a line for each complaint and for its fix."""
    examinations = {each.code: each for each in examine("default")}
    assert code in examinations, examinations
    each = examinations[code]
    return "\n".join(f"{complaint.text}\n{complaint.fix}" for complaint in each.complaints)


@pytest.fixture(autouse=True)
def _of_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests may lose what it has written, so that it is faster."""
    kept = {name: rule for name, rule in doctor._SETTINGS.items() if name not in OF_THE_SERVER}
    monkeypatch.setattr(doctor, "_SETTINGS", kept)
    monkeypatch.setattr(doctor, "known_tasks", dict)


@pytest.fixture
def configured() -> Iterator[Callable[[str], None]]:
    """Return a function that configures the database for new sessions. It is reset at the end."""
    name = connection.settings_dict["NAME"]

    def configure(setting: str) -> None:
        sql(f"ALTER DATABASE {name} SET {setting}")
        connection.close()

    yield configure
    sql(f"ALTER DATABASE {name} RESET ALL")
    connection.close()


def test_a_queue_that_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this server end in deadlocks, and force checkpoints.
    monkeypatch.setattr(database, "_readings", {})
    monkeypatch.setattr(database, "FEWEST", 10**6)
    WorkerFactory.create(version="v8")
    examinations = examine("default")
    assert {each.code: [*each.complaints] for each in examinations if each.complaints} == {}
    codes = [each.code for each in examinations]
    assert codes == [code for code in doctor._TITLES if code != "connection"]
    notes = [each.note.partition(" ")[2].rpartition(" ")[0] for each in examinations if each.note]
    assert [each.split()[0] for each in notes] == ["notification", "commit", "clocks"]
    json.dumps([each.as_json() for each in examinations])


def test_what_others_find_is_found(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """By the system checks, by the health of the queues, and by the parts of the server's state."""
    sql("CREATE FUNCTION pgqueue_of_tomorrow() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    assert "pgqueue_of_tomorrow" in found("installation")
    sql("DROP FUNCTION pgqueue_of_tomorrow()")
    assert "no worker claims jobs\nStart a worker: manage.py runqueueworker" in found("queues")
    WorkerFactory.create(queues=["other"])
    WorkerFactory.create(heartbeat_at=ago(hours=1))
    JobFactory.create(queue_name="mail", run_after=ago(hours=1))
    JobFactory.create(running=True, worker=12345)
    queues = found("queues")
    for text in ("mail: the oldest ready job waits", "mail: 0 workers serve it", "1 running job has lost"):
        assert text in queues
    pause(everything=True)
    assert "everything is paused" in found("queues")
    connect().execute("SELECT txid_current()")  # and it stays open
    for name, value in {"OLDEST": 0, "MOST_USED": 0, "MOST_DEAD": -1, "SHORTEST_TURN": 0}.items():
        monkeypatch.setattr(database, name, value)
    sql("UPDATE pgqueue_ring SET since = since - interval '90 days'")
    server = found("server")
    for text in ("Old transactions and held snapshots", "Tables: Vacuum", "Connections:", "History: "):
        assert text in server
    sql("UPDATE pgqueue_ring SET since = clock_timestamp()")


# -- locks and rights, found by the command


def said(database: str) -> str:
    """Return what the command prints, and the error with which it ends."""
    out = StringIO()
    with pytest.raises(CommandError) as ended:
        call_command("pgqueue", "doctor", "--database", database, stdout=out)
    assert ended.value.returncode == 1
    return f"{out.getvalue()}{ended.value}"


@contextmanager
def a_lock_of_the_table() -> Iterator[str]:
    """Held by a transaction for which readers and an enqueue wait."""
    with open_raw() as holder, open_raw() as web, holder.transaction():
        holder.execute("LOCK TABLE pgqueue_job IN ACCESS EXCLUSIVE MODE")
        waiting = start(web, lambda web: web.execute("SELECT pgqueue_enqueue('a.b')")).blocked()
        yield "default"
        holder.execute("ROLLBACK")
        waiting.result()


@contextmanager
def a_role(grants: str) -> Iterator[str]:
    """An alias whose role has only what the owner grants it."""
    with roles("viewer") as [name], open_raw() as owner:
        owner.execute(grants.format(role=name))
        with alias("viewer", OPTIONS={"assume_role": name}) as viewer:
            yield viewer


LACKS = "The role of the database 'viewer' lacks a right that workers need: permission denied for table"
GIVE_RIGHTS = "python manage.py pgqueue roles --apply --database viewer --worker ROLE"
#: What stages it, and what the command says: the fault, and what helps.
FAULTS: dict[str, tuple[Callable[[], AbstractContextManager[str]], list[str]]] = {
    "a lock that readers wait for": (a_lock_of_the_table, [
        "Queues and workers: act\n- The server did not answer within 0.3 s.",
        "Look for locks and long transactions: manage.py pgqueue database",
        "- Lock contention: ",
        "End the session that blocks the others (pg_terminate_backend)",
    ]),
    "no grants": (lambda: a_role("SELECT"), [f"{LACKS} pgqueue_", GIVE_RIGHTS]),
    "a grant to read that is missing": (
        lambda: a_role(
            'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{role}";'
            ' REVOKE SELECT ON pgqueue_stat FROM "{role}"'
        ),
        [f"Connection: act\n- {LACKS} pgqueue_stat. (pgqueue.E035)", GIVE_RIGHTS],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_locks_and_rights(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LONGEST_WAIT", 0.0)
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)
    stage, texts = FAULTS[fault]
    with stage() as name:
        text = said(name)
    for each in texts:
        assert each in text


# -- what only the doctor finds


@pytest.mark.parametrize("how", ["a call waits", "calls were handed over before"])
def test_calls_that_no_worker_hands_over(how: str) -> None:
    arrives = "Calls for other databases do not arrive: no worker serves the queue relay."
    WorkerFactory.create(queues=["mail"])
    assert arrives not in found("queues")
    if how == "a call waits":
        enqueue(noop.using(relay="other"))
    else:
        JobStatFactory.create(queue_name="relay")
    assert f"{arrives}\nStart a worker: manage.py runqueueworker --queues relay" in found("queues")
    WorkerFactory.create(queues=["relay"])
    assert arrives not in found("queues")


def test_a_database_without_tables_asks_for_migrate_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "unapplied", lambda *_: ["0001_initial"])
    [only] = examine("default")
    assert [*only.complaints[0]][:2] == [
        "Migrations are not applied: 0001_initial.", "Run: manage.py migrate --database default"
    ]  # fmt: skip


def test_a_database_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(doctor, "connect", refuse)
    [only] = examine("default")
    assert (only.code, only.complaints[0].text) == ("connection", "connection refused")


def test_a_notification_that_does_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two sessions are in different databases, as with two servers behind one address."""
    aliases = iter(["default", "other"])
    monkeypatch.setattr(doctor, "connect", lambda _alias, **more: open_session(next(aliases), **more))
    monkeypatch.setattr(doctor, "ARRIVES_WITHIN", 0.2)
    assert found("wakeup").startswith("A notification did not arrive within 0.2 s.")


def test_a_pooler_for_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    def pooled(alias: str, **more: Any) -> Any:
        session = open_session(alias, **more)
        session.pooled = True
        return session

    monkeypatch.setattr(doctor, "connect", pooled)
    said = found("wakeup")
    assert said.startswith("The database is behind a transaction pooler, so workers poll every 1 s.")
    assert "Set DISABLE_SERVER_SIDE_CURSORS to True in DATABASES['default']." in said


def test_commits_that_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SLOW_COMMIT", 0.0)
    assert "ms: the disk, or a synchronous standby, is slow." in found("commit")


def test_a_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._here
    monkeypatch.setattr(doctor, "_here", lambda: real() - 602)
    assert "The clock of this machine differs from that of the server by 10 min." in found("clock")


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("synchronous_commit = off", "A crash of the server may lose jobs"),
        ("idle_session_timeout = '5s'", "Sessions of web processes end while they wait"),
        ("pgqueue.notify = 'off'", "Enqueuing does not wake up workers"),
    ],
)
def test_settings_of_the_server(setting: str, text: str, configured: Callable[[str], None]) -> None:
    assert found("settings") == ""
    configured(setting)
    assert found("settings").startswith(text)


def test_settings_that_only_the_whole_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SETTINGS", _SETTINGS)
    off, on = (
        SimpleNamespace(settings=dict.fromkeys(OF_THE_SERVER, value), notify="", slots=0)
        for value in ("off", "on")
    )
    texts = [complaint.text.rpartition(":")[2].strip() for complaint in doctor._settings("default", off)]
    assert {*texts} == {f"{name} is off." for name in OF_THE_SERVER}
    assert [*doctor._settings("default", on)] == []


def atomic() -> None:
    """Be a task."""


EIGHT_DAYS = Unique(window=timedelta(days=8))
IDLE = "idle_in_transaction_session_timeout"
EARLY = "The server ends the transaction of an atomic task before its timeout"
CUT = f"{EARLY}: {IDLE} is 20 s. {__name__}.atomic"


@pytest.mark.parametrize(
    ("options", "given", "text"),
    [
        ({"atomic": True, "timeout": 30}, {}, CUT),
        ({"atomic": True}, {}, CUT),
        ({"atomic": True, "timeout": 20}, {}, ""),
        ({"timeout": 30}, {}, ""),
        ({"on_lost": "fail", "timeout": 30}, {"GRACE": 29}, "A stop of a worker fails jobs"),
        ({"on_lost": "fail", "timeout": 30}, {"GRACE": 30}, ""),
        ({"unique": EIGHT_DAYS}, {}, "The window of unique jobs is longer than RETENTION (7 d)"),
        ({"unique": EIGHT_DAYS}, {"RETENTION": timedelta(days=8)}, ""),
        ({}, {"RETENTION": 59}, "RETENTION is 59 s, so a result may be gone"),
        ({}, {"RETENTION": 60}, ""),
    ],
)  # fmt: skip
def test_settings_that_fight_each_other(
    options: dict[str, Any], given: dict[str, Any], text: str, settings: Any,
    monkeypatch: pytest.MonkeyPatch, configured: Callable[[str], None],
) -> None:  # fmt: skip
    configured(f"{IDLE} = '20s'")
    settings.PGQUEUE = given
    declared = task(**options)(atomic)
    monkeypatch.setattr(doctor, "known_tasks", lambda: {declared.module_path: declared})
    said = found("settings")
    assert said.startswith(text) if text else said == ""


@pytest.mark.parametrize(
    ("pool", "size"), [(True, 4), ({"min_size": 2}, 2), ({"max_size": 7}, 7), ({"max_size": 8}, 0)]
)
def test_a_pool_smaller_than_the_threads(pool: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerFactory.create(slots=8)
    WorkerFactory.create(slots=64, heartbeat_at=ago(hours=1))
    assert found("settings") == ""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)
    figures = SimpleNamespace(slots=8)
    texts = [complaint.text for complaint in doctor._of_pool("default", figures)]
    assert texts == [f"Workers run up to 8 jobs at once, but a pool has {size} connections."] * bool(size)
    monkeypatch.undo()


def test_a_deploy_that_has_stopped_half_way() -> None:
    WorkerFactory.create(version="v7", started_at=ago(days=3))
    WorkerFactory.create(version="go 1.2", started_at=ago(hours=9), supervisor=None)
    new = WorkerFactory.create(version="v8", started_at=ago(minutes=5))
    assert found("versions") == ""
    new.started_at = ago(hours=2)
    new.save()
    assert found("versions").startswith("Workers run several versions for 2 h: v7 (1), v8 (1).")


def test_schedules_that_do_not_fire() -> None:
    schedules.create("later")
    schedules.create("paused", next_run_at=ago(hours=1), paused_at=ago(hours=2))
    schedules.overdue(ago(minutes=10), name="nightly")
    said = found("schedules")
    assert said == ("nightly has been due for 10 min.\nTo see why: manage.py pgqueue schedules show nightly")


def test_indexes_and_history_that_have_grown(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    assert found("indexes") == found("history") == ""
    monkeypatch.setattr(reindex, "INDEX_BYTES", 1)
    monkeypatch.setattr(reindex, "INDEX_BYTES_OF_ROW", 0)
    monkeypatch.setattr(doctor, "MOST_KEPT", -1)
    statement = "REINDEX INDEX CONCURRENTLY pgqueue_job_claim"
    assert f'{statement}. Or let workers do it: PGQUEUE["REINDEX"] = True.' in found("indexes")
    settings.PGQUEUE = {"REINDEX": True}
    within = "Workers do this within hours, if their role owns the table."
    assert f"{within} In SQL: {statement}" in found("indexes")
    assert "manage.py pgqueue queues" in found("history")


def test_the_page_shows_the_same(admin_client: Client) -> None:
    database = "/admin/django_pgqueue/jobstat/database/"
    page = body(admin_client, f"{database}doctor/")
    assert "no worker claims jobs" in page
    assert "Start a worker: manage.py runqueueworker" in page
    assert f"{database}doctor/" in body(admin_client, database)
