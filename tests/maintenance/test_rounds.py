"""The rounds of maintenance: flows that nobody ends, statistics, and limits that code declares."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from threading import Event, Thread
from time import monotonic
from types import ModuleType
from typing import Any

import psycopg
import pytest

from django_pgqueue import reset_limit
from django_pgqueue.checks.doctor import examine
from django_pgqueue.maintenance import reindex, rounds as rounds_module
from django_pgqueue.maintenance.limits import DeclaredLimits
from django_pgqueue.maintenance.reindex import ReindexRounds, bloated_indexes, rebuild
from django_pgqueue.maintenance.rounds import Rounds, sweep
from django_pgqueue.models import Job, JobStat, Limit, StatRollup
from django_pgqueue.postgres.session import Session
from django_pgqueue.tasks import paths
from django_pgqueue.testing import run_jobs
from tests.app import limit_tasks
from tests.support.figures import count, counted, forget, roll_up
from tests.support.jobs import add, after, members, open_batch, outcome, status, value
from tests.support.sessions import Connect, Connection, start
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


@pytest.mark.promise("flow-repair")
def test_a_round_ends_batches_and_lets_jobs_run_that_wait_for_nothing(
    session: Session, one: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    (job,) = add(one)
    batch, (member,) = open_batch(one, 1)
    child, callback = after(one, [job]), after(one, [batch])
    rounds = Rounds()
    rounds.run(session, 100.0)
    assert status(one, child, callback) == "blocked blocked"
    assert 108.0 <= rounds._next[rounds._spread_nets] <= 112.0
    one.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (child,))
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (member,))
    rounds.run(session, 101.0)
    assert status(one, child, callback) == "blocked blocked", "it is not time"
    with caplog.at_level("INFO", "django_pgqueue"):
        rounds.run(session, 112.0)
    assert status(one, child, callback) == "pending cancelled"
    assert outcome(one, batch) == "cancelled"
    assert "ended 1 batch that no worker would have ended" in caplog.text
    assert rounds._next[rounds._spread_nets] < 113.0, "there may be more"


def test_rounds_go_through_all_pages(
    session: Session, one: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "PAGE", 2)
    (job,) = add(one)
    children = [after(one, [job]) for _ in range(3)]
    batches = [open_batch(one, 1) for _ in range(3)]
    one.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (children[2],))
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (batches[2][1][0],))
    rounds = Rounds()
    rounds.run(session, 100.0)
    assert (status(one, *children), outcome(one, batches[2][0])) == ("blocked blocked blocked", "")
    rounds.run(session, 101.0)
    assert (status(one, *children), outcome(one, batches[2][0])) == ("blocked blocked pending", "cancelled")


def test_an_old_batch_is_deleted(session: Session, one: Connection) -> None:
    batch, _ = open_batch(one)
    members_of, _ = open_batch(one, 1)
    one.execute("UPDATE pgqueue_batch SET finished_at = finished_at - interval '31 days'")
    Rounds().run(session, 100.0)
    assert value(one, "SELECT array_agg(id) FROM pgqueue_batch") == [members_of]
    assert members(one, members_of)
    assert batch != members_of


# -- minutes are added to the sums, and what nobody reads any more is deleted


def test_every_sum_has_every_attempt_once(one: Connection) -> None:
    count(one, [0, 5, 25, 90, 3000], 3)
    count(one, [5, 25], 2, task="tests.app.tasks.add")
    count(one, [5], 1, queue="mail")
    expected = dict.fromkeys(counted(one), (20, 20))
    assert roll_up(one) == 7, "all but the current minute"
    assert counted(one) == expected
    assert len(expected) == 13
    total = StatRollup.objects.get(span="total", queue_name="default", task_path="tests.app.tasks.noop")
    assert (total.done, sum(total.run_histogram), total.run_seconds) == (12, 12, 12.0)
    assert JobStat.objects.filter(rolled_up=False).count() == 1


def test_it_is_done_once_and_in_steps(one: Connection) -> None:
    count(one, range(10, 16))
    assert [roll_up(one, 4) for _ in range(3)] == [4, 2, 0]
    assert set(counted(one).values()) == {(6, 6)}


DAY = 24 * 60


def test_what_is_kept(one: Connection) -> None:
    count(one, [1 * DAY, 3 * DAY, 3 * DAY + 30, 100 * DAY])
    assert forget(one) == 0, "nothing that is not in the sums"
    assert roll_up(one) == 4
    assert forget(one) == 21, (
        "3 minutes, 3 quarters, an hour, a day: a queue, all, and but for minutes a task"
    )
    assert JobStat.objects.count() == 1
    left = dict.fromkeys(["minute", "quarter", "hour", "day", "total"], 0)
    for span in StatRollup.objects.values_list("span", flat=True):
        left[span] += 1
    assert left["minute"] == 2, "of the queue and of all queues"
    assert left["quarter"] == 3, "of the task, too"
    assert 6 <= left["hour"] <= 9, "those of the last 90 days"
    assert left["day"] >= 6
    assert left["total"] == 1
    assert forget(one) == 0
    one.execute("UPDATE pgqueue_stat_rollup SET updated_at = now() - interval '91 days'")
    forget(one)
    assert not StatRollup.objects.filter(span="total").exists(), "the task has not run for as long"


def test_old_rows_are_deleted_in_steps(one: Connection) -> None:
    count(one, range(3 * DAY, 3 * DAY + 10))
    roll_up(one)
    assert forget(one, limit=7) > 7, "with the sums of minutes, those of quarters of an hour"
    assert [JobStat.objects.count(), StatRollup.objects.filter(span="minute").count()] == [3, 13]
    assert [forget(one, limit=7) for _ in range(3)] == [7, 6, 0]


def test_the_upkeep_of_a_worker_does_both(session: Session, one: Connection) -> None:
    count(one, [5, 3 * DAY])
    sweep(session)
    assert JobStat.objects.get().rolled_up
    assert set(StatRollup.objects.filter(span="total").values_list("done", flat=True)) == {2}


# -- limits that the code declares, and those that it no longer declares

HERE = "tests.app.limit_tasks"


def add_limit(name: str, module: str = HERE, **columns: Any) -> None:
    """Add a limit that other code has declared."""
    Limit.objects.create(name=name, concurrency=3, declared_concurrency=3, declared_by=module, **columns)


def withdrawn(session: Session) -> set[str]:
    """Return the names of the limits that are found to be no longer declared."""
    before = set(Limit.objects.exclude(declared_by="").values_list("name", flat=True))
    DeclaredLimits().withdraw(session)
    return before - set(Limit.objects.exclude(declared_by="").values_list("name", flat=True))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_limit_that_was_removed_from_code_keeps_its_number_and_can_be_deleted(
    session: Session, by_hand: bool
) -> None:
    DeclaredLimits().write(session)
    two = Limit.objects.get(name=limit_tasks.two.module_path)
    assert (two.concurrency, two.declared_by) == (2, HERE)
    add_limit("removed", is_overridden=by_hand)
    assert withdrawn(session) == {"removed"}
    left = Limit.objects.get(name="removed")
    assert (left.concurrency, left.is_declared, left.is_overridden) == (3, False, by_hand)
    assert withdrawn(session) == set()
    reset_limit(name="removed")
    assert not Limit.objects.filter(name="removed").exists()


def test_a_limit_comes_back_when_the_code_declares_it_again(session: Session) -> None:
    add_limit("removed")
    assert withdrawn(session) == {"removed"}
    columns = "'{removed}', '{5}', '{wait}', '{NULL}', '{NULL}', '{NULL}', '{tests.app.tasks}'"
    assert session.value(f"SELECT _pgqueue_declare_limits({columns})") == 1
    back = Limit.objects.get(name="removed")
    assert (back.concurrency, back.declared_concurrency, back.declared_by) == (5, 5, "tests.app.tasks")
    assert back.is_declared


@pytest.mark.parametrize(
    ("module", "is_gone"),
    [
        (HERE, True),
        ("tests.app.removed", True),  # a module of an app that does not exist any more
        ("tests.app.removed.tasks", True),
        ("warehouse.tasks", False),  # of another project
        ("tests.app.not_imported", False),
        ("tests.app.broken.tasks", False),  # its package cannot be imported
    ],
)
def test_only_modules_that_this_process_knows_are_asked(
    session: Session, monkeypatch: pytest.MonkeyPatch, module: str, is_gone: bool
) -> None:
    def find(name: str) -> object:
        if "broken" in name:
            raise RuntimeError(name)
        return object() if name.endswith("not_imported") else find_spec(name)

    monkeypatch.setattr(paths, "find_spec", find)
    add_limit("removed", module)
    assert withdrawn(session) == ({"removed"} if is_gone else set())


def test_a_limit_that_another_worker_declares_meanwhile_stays(
    session: Session, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code has moved to another module, and this worker, with older code, has read the row before."""
    monkeypatch.setitem(sys.modules, "tests.app.old", ModuleType("tests.app.old"))
    add_limit("moved", "tests.app.old")
    other = connect()
    columns = "'{moved}', '{3}', '{wait}', '{NULL}', '{NULL}', '{NULL}', '{tests.app.new}'"
    other.execute(f"SELECT _pgqueue_declare_limits({columns})")
    withdrawing = start(session.connection, lambda _: DeclaredLimits().withdraw(session)).blocked()
    other.commit()
    withdrawing.result()
    moved = Limit.objects.get()
    assert (moved.declared_concurrency, moved.declared_by) == (3, "tests.app.new")


# --- The duty that rebuilds indexes


JOBS = 20_000
CLAIM = "pgqueue_job_claim"
_FILL = """
    INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, run_after)
    SELECT 'tests.app.tasks.noop', 5, 'rerun', clock_timestamp() - number * interval '1 s'
    FROM generate_series(1, %s) AS number
"""


@pytest.fixture(autouse=True)
def _small_indexes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reindex, "INDEX_BYTES", 200_000)


@pytest.fixture
def bloated(session: Session, one: Connection) -> None:
    """A backlog came and went, and vacuum has removed its rows."""
    one.execute(_FILL, (JOBS,))
    one.execute("UPDATE pgqueue_job_live SET priority = 1")
    one.execute("DELETE FROM pgqueue_job_live")
    one.execute("VACUUM ANALYZE pgqueue_job_live")
    # Before PostgreSQL 15, another process counts, and it is late.
    live = "SELECT pg_stat_get_live_tuples('pgqueue_job_live'::regclass)"
    until(lambda: value(one, live) == 0, what="the count of live rows")


def size(one: Connection, name: str = CLAIM) -> int:
    return int(value(one, "SELECT pg_relation_size(%s::regclass)", name))


def invalid(one: Connection) -> list[str]:
    query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid AND indrelid = %s::regclass"
    return [name for (name,) in one.execute(query, ("pgqueue_job_live",)).fetchall()]


def complaints() -> str:
    [indexes] = [each for each in examine("default") if each.code == "indexes"]
    return "\n".join(each.text for each in indexes.complaints)


@pytest.mark.usefixtures("bloated")
def test_a_bloated_index_shrinks_while_jobs_run(session: Session, one: Connection) -> None:
    before = size(one)
    assert before > 2 * reindex.INDEX_BYTES
    assert f"{CLAIM} has " in complaints()
    ran, ended = 0, Event()

    def work() -> None:
        rebuild(session, rebuilt)
        ended.set()

    rebuilt: dict[str, float] = {}
    thread = Thread(target=work)
    thread.start()
    while not ended.is_set() or not ran:
        add(one)
        ran += len(run_jobs())
    thread.join()
    assert {CLAIM, "pgqueue_job_live_pkey"} <= {*rebuilt}
    assert size(one) < before / 10
    assert complaints() == ""
    assert (invalid(one), Job.objects.count()) == ([], ran)
    assert rebuild(session, {}) == [], "nothing is left to do"


@committed
@pytest.mark.usefixtures("bloated")
def test_an_old_transaction_ends_the_attempt_whose_leftover_goes_first(
    session: Session, one: Connection, connect: Connect, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO", "django_pgqueue")
    monkeypatch.setitem(reindex._BOUNDS, "lock_timeout", "300")
    reader = connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM pgqueue_job_live")
    with pytest.raises(psycopg.errors.LockNotAvailable):  # the leftover waits for the same transaction
        rebuild(session, {})
    (left,) = invalid(one)
    index = left.removesuffix("_ccnew")
    assert f"{index} was not rebuilt, which is tried again in a day" in caplog.text
    assert f"{left} is invalid: a REINDEX that was interrupted has left it." in complaints()
    reader.execute("ROLLBACK")
    assert index in rebuild(session, {})
    dropped, rebuilt = (caplog.text.index(text) for text in (f"dropped {left}", f"rebuilt {index} in"))
    assert dropped < rebuilt
    assert invalid(one) == []


@pytest.mark.usefixtures("bloated")
def test_only_one_supervisor_rebuilds(session: Session, one: Connection) -> None:
    one.execute(reindex._LOCK_SQL)
    assert rebuild(session, {}) == []
    one.execute("SELECT pg_advisory_unlock_all()")
    tried = monotonic()
    assert CLAIM not in rebuild(session, {CLAIM: tried}), "it was rebuilt today"
    session.pooled = True
    assert rebuild(session, {}) == []


@pytest.mark.usefixtures("bloated")
def test_a_role_that_may_not_rebuild(session: Session, one: Connection) -> None:
    assert {index.may_rebuild for index in bloated_indexes(session)} == {True}
    before = size(one)
    session.connection.execute("SET ROLE pg_monitor")
    assert {index.may_rebuild for index in bloated_indexes(session)} == {False}
    assert reindex._next(session, {}) is None
    assert size(one) == before


def test_the_duty_is_off_by_default(session: Session, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, float]] = []
    monkeypatch.setattr(reindex, "rebuild", lambda _session, rebuilt: calls.append(rebuilt))

    def run(rounds: ReindexRounds, *times: float) -> int:
        for time in times:
            rounds.run(time)
            if rounds._thread is not None:
                rounds._thread.join()
        return len(calls)

    assert run(ReindexRounds("default"), 1.0, 1e6, 2e6) == 0
    settings.PGQUEUE = {"REINDEX": True}
    rounds = ReindexRounds("default")
    assert run(rounds, 1.0, 2.0) == 0, "not at the start"
    assert run(rounds, 3_602.0, 3_603.0) == 1
    assert rounds.next_round >= 3_602.0 + reindex.EVERY / 2
