"""The state of the database: what each part finds, when it says to act, and what a role cannot see."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue.monitoring import database as parts
from django_pgqueue.monitoring.database import DatabasePart, PartState, database, has_too_many, is_too_old
from tests.support.databases import alias, roles
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.sessions import Connect, open_raw, start

pytestmark = pytest.mark.django_db(transaction=True)

UPDATE = "UPDATE pgqueue_job_live SET priority = 1 /* secret */"


@pytest.fixture(autouse=True)
def _no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_readings", {})


def look(code: str, using: str = "default", *, statements: bool = False) -> DatabasePart:
    """Return one parts."""
    return {each.code: each for each in database(using, statements=statements)}[code]


def test_who_waits_for_whom(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create()
    holder, waiter = connect(), connect()
    holder.execute(UPDATE)
    waiting = start(waiter, lambda each: each.execute(UPDATE)).blocked()
    found = look("locks")
    [wait] = found.rows
    assert (wait.table, wait.lock) == ("pgqueue_job_live", "transactionid")
    assert (wait.pid, wait.blocked_by) == (waiter.info.backend_pid, holder.info.backend_pid)
    assert wait.blocker_state == "idle in transaction"
    assert wait.blocker_seconds >= wait.seconds >= 0
    assert wait.statement == wait.blocker_statement == "", "not asked for"
    monkeypatch.setattr(parts, "LONGEST_WAIT", 0)
    found = look("locks", statements=True)
    assert found.state == PartState.ACT
    assert found.finding.startswith("1 sessions wait for a lock, the longest for ")
    assert [found.rows[0].statement, found.rows[0].blocker_statement] == [UPDATE, UPDATE]
    holder.rollback()
    waiting.result()
    assert look("locks").rows == []


def test_locks_that_have_nothing_to_do_with_the_queue_are_left_out(connect: Connect) -> None:
    holder, waiter = connect(), connect()
    holder.execute("SELECT pg_advisory_xact_lock(1)")
    waiting = start(waiter, lambda each: each.execute("SELECT pg_advisory_xact_lock(1)")).blocked()
    assert look("locks").rows == []
    holder.rollback()
    waiting.result()
    waiter.rollback()
    JobFactory.create()
    holder.execute("SELECT pg_advisory_xact_lock(1)")
    waiter.execute("SELECT FROM pgqueue_job_live")
    waiting = start(waiter, lambda each: each.execute("SELECT pg_advisory_xact_lock(1)")).blocked()
    assert [wait.lock for wait in look("locks").rows] == ["advisory"], "it holds a lock on a table of ours"
    holder.rollback()
    waiting.result()


def test_a_held_snapshot(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = connect()
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT 1")
    found = look("snapshots", statements=True)
    [row] = [each for each in found.rows if each.pid == holder.info.backend_pid]
    assert (row.kind, row.state, row.statement) == ("transaction", "idle in transaction", "SELECT 1")
    assert row.transactions is not None
    assert found.finding.startswith("The oldest transaction has been open for ")
    monkeypatch.setattr(parts, "OLDEST", 0)
    assert look("snapshots").state == PartState.ACT


def test_patterns_see_whole_statements(connect: Connect) -> None:
    holder = connect()
    pid = holder.info.backend_pid

    def shown(comment: str) -> str:
        holder.execute(f"SELECT 1 /* {comment} */")
        [row] = [each for each in look("snapshots", statements=True).rows if each.pid == pid]
        return str(row.statement)

    begins, card = "x" * 280, "4111-1111-1111-1111"
    assert shown(f"{begins} {card}") == f"SELECT 1 /* {begins} {card}"[: parts.CHARACTERS]
    with override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]}):
        assert shown(f"{begins} {card}") == f"SELECT 1 /* {begins} [redacted"[: parts.CHARACTERS]
        assert shown(f"{begins * 5} {card}") == "…", "the server itself has cut it"


def held(kind: str, state: str, seconds: float | None) -> bool:
    return is_too_old(SimpleNamespace(kind=kind, state=state, seconds=seconds))


def dead_rows(table: str, live: int, dead: int) -> bool:
    return has_too_many(SimpleNamespace(name=table, live_rows=live, dead_rows=dead))


def stands_still(seconds: float, retention: float) -> bool:
    return parts._ring([(1, seconds, retention)])[0] == PartState.ACT


@pytest.mark.parametrize(
    ("is_over", "given", "expected"),
    [
        (held, ("transaction", "active", 299), False), (held, ("transaction", "", None), False),
        (held, ("transaction", "idle in transaction", 301), True), (held, ("prepared", "", 301), True),
        (held, ("slot", "active", None), False), (held, ("slot", "inactive", None), True),
        (dead_rows, ("pgqueue_job_live", 1_000_000, 100_000), False),
        (dead_rows, ("pgqueue_job_live", 1_000_000, 100_001), True),
        (dead_rows, ("pgqueue_job_kept", 1_000_000, 600_000), False),
        (dead_rows, ("pgqueue_job_kept", 1_000_000, 600_001), True),
        (stands_still, (3601, 0), True), (stands_still, (3599, 0), False),
        (stands_still, (86400, 6 * 86400), False), (stands_still, (2 * 86400 + 1, 6 * 86400), True),
    ],
)  # fmt: skip
def test_the_limit_of_each_part(is_over: Callable[..., bool], given: tuple[Any, ...], expected: bool) -> None:
    assert is_over(*given) is expected


def test_a_replication_slot_that_nobody_uses(connect: Connect) -> None:
    one = connect(autocommit=True)
    one.execute("SELECT pg_create_physical_replication_slot('pgqueue_test', false)")
    try:
        found = look("snapshots")
    finally:
        one.execute("SELECT pg_drop_replication_slot('pgqueue_test')")
    assert ("slot", "pgqueue_test", "inactive") in {(each.kind, each.name, each.state) for each in found.rows}
    assert found.state == PartState.ACT
    assert "Replication slots without a consumer: 1." in found.finding


def test_the_tables(connect: Connect) -> None:
    JobFactory.create(done=True)
    found = look("tables").rows
    names = [table.name for table in found]
    assert names[0] == "pgqueue_job_live"
    assert all(name.startswith(("pgqueue_job_past_", "pgqueue_job_kept")) for name in names[1:10])
    assert [table.name for table in found if table.is_current] == ["pgqueue_job_past_1"]
    assert all(table.table_bytes + table.index_bytes > 0 for table in found if table.name in names[:10])


def test_connections_by_program(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [connect(options="-c application_name=checkout") for _ in range(2)]
    opened[0].execute("SELECT 1")
    opened[1].rollback()
    [program] = [each for each in look("sessions").rows if each.name == "checkout"]
    assert (program.connections, program.in_transaction, program.in_this_database) == (2, 1, 2)
    monkeypatch.setattr(parts, "MOST_USED", 0)
    assert look("sessions").state == PartState.ACT


def test_rates_since_the_last_look(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    [since_reset] = look("traffic").rows
    assert since_reset.is_since_reset
    assert len(look("traffic").rows) == 1, "too soon after the first look"
    monkeypatch.setattr(parts, "SHORTEST_INTERVAL", 0)
    one = connect(autocommit=True)
    one.execute("CREATE TEMPORARY TABLE t AS SELECT FROM generate_series(1, 3)")
    recent, since_reset = look("traffic").rows
    assert (recent.is_since_reset, since_reset.is_since_reset) == (False, True)
    assert recent.seconds >= 1
    kept = parts._readings["default"]
    kept[0] = kept[0]._replace(deadlocks=-1)
    assert look("traffic").state == PartState.ACT
    for place, reading in enumerate(kept):
        kept[place] = reading._replace(commits=10**12)  # the sums have been reset in the meantime
    assert len(look("traffic").rows) == 1


def test_the_rates_are_those_between_two_readings() -> None:
    def reading(at: float, **sums: float) -> Any:
        return SimpleNamespace(at=at, rollbacks=40, deadlocks=2, timed=3, forced=2, **sums)

    first = reading(1000.0, wal_bytes=5000.0, commits=100)
    vars(first).update(rollbacks=10, deadlocks=0, forced=1)
    assert parts._recent("other", first) is None
    found = parts._recent("other", reading(1010.0, wal_bytes=25000.0, commits=190))
    assert found == parts.Traffic(10.0, False, 2000.0, 9.0, 3.0, 2, 0, 1)
    later = reading(1200.0, wal_bytes=35000.0, commits=200)
    assert parts._recent("other", later) is None, "the readings are too old to compare"


def test_wakeups() -> None:
    WorkerFactory.create(supervisor=1)
    WorkerFactory.create(supervisor=1, holds_lock=False)
    WorkerFactory.create(supervisor=None, holds_lock=False)
    [found] = look("wakeups").rows
    assert (found.workers, found.polling_workers) == (2, 1)


def test_a_role_without_rights_is_told_what_it_cannot_see(connect: Connect) -> None:
    holder = connect()
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT 1")
    with roles("viewer") as [role], open_raw() as owner:
        owner.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{role}"')
        with alias("weak", OPTIONS={"assume_role": role}) as weak:
            found = {each.code: each for each in database(weak, statements=True)}
    # Another process of the tests may have a replication slot for a moment, and another test left dead rows.
    assert found["snapshots"].state in {PartState.HIDDEN, PartState.ACT}
    assert found["tables"].state in {PartState.FINE, PartState.ACT}
    assert "Grant pg_read_all_stats to see them." in found["snapshots"].finding
    [row] = [each for each in found["snapshots"].rows if each.pid == holder.info.backend_pid]
    assert (row.seconds, row.is_visible) == (None, False)
    assert "insufficient privilege" not in str([each.as_json() for each in found.values()])
    others = [found[code] for code in ("locks", "sessions", "wakeups", "ring")]
    assert [each.finding for each in others if each.state != PartState.FINE] == []
