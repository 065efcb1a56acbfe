"""Roles on connections of their own: one that may only enqueue, and one that may connect, and nothing else:
what each can do, and that it can do no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import cancel, enqueue, retry
from django_pgqueue.maintenance.rounds import tell_foreign_locks, tell_retention
from django_pgqueue.models import Job
from django_pgqueue.monitoring.health import full_health, health
from django_pgqueue.monitoring.queues import foreign_locks
from django_pgqueue.postgres.roles import CALLED
from django_pgqueue.postgres.session import Session
from tests.app import worker_tasks as tasks
from tests.app.limit_tasks import ship
from tests.support.databases import alias, roles
from tests.support.factories import WorkerFactory
from tests.support.jobs import fetch, sql, value
from tests.support.sessions import Connect, Connection, open_raw, start
from tests.support.workers import fresh, run_due, until, working

from .conftest import LATER_LEAF, MANY, PASSWORD, Login, Roles, changed, outcomes

ECHO = "tests.app.worker_tasks.add"
SECRET = "4111111111111111"

#: What this role can call besides the functions that are made for it, and why that is harmless. A function
#: that is neither here nor refused fails the test: decide whether the role may call it.
HARMLESS = {
    "they compute from their arguments, and read no table": {
        "_pgqueue_add_histograms", "_pgqueue_append", "_pgqueue_allowed_silence", "_pgqueue_channel",
        "_pgqueue_enqueue_only", "_pgqueue_fingerprint",
        "_pgqueue_is_paused_by", "_pgqueue_key_problem", "_pgqueue_limit_name", "_pgqueue_limit_problem",
        "_pgqueue_lock_key", "_pgqueue_next_start", "_pgqueue_of_tenant",
        "_pgqueue_options_problem", "_pgqueue_pause_reason", "_pgqueue_problem", "_pgqueue_random",
        "_pgqueue_searched", "_pgqueue_shelf", "_pgqueue_shows", "_pgqueue_starts_left",
    },
    "it says whose jobs the role itself may see": {"pgqueue_tenant"},
    "it writes settings of this transaction": {"_pgqueue_wake_once"},
    "it reads the catalogs, which everybody may read": {"_pgqueue_payload_paths"},
    "it does nothing for a role that may not": {"_pgqueue_count_depth", "_pgqueue_note_failures"},
    "it ends only sessions of the same role": {"_pgqueue_end_sessions"},
    "it does nothing or raises an error before it needs a right, and has those of its caller": {
        "_pgqueue_link",
    },
}  # fmt: skip


#: Functions that note who runs them, and what they return.
EVIL = {
    "clock_timestamp() RETURNS timestamptz": "now()",
    "current_setting(text) RETURNS text": "'none'",
    "current_setting(text, boolean) RETURNS text": "NULL",
    "has_table_privilege(text, text, text) RETURNS boolean": "true",
    "hashtextextended(text, bigint) RETURNS bigint": "1",
    "join_any(text, oid) RETURNS text": "$1",
    "join_text(text, text) RETURNS text": "$1",
    "nextval(regclass) RETURNS bigint": "1",
    "_pgqueue_enqueue_only(jsonb, bigint) RETURNS jsonb": "$1",
    "replace(text, text, text) RETURNS text": "$1",
    "same(text, text) RETURNS boolean": "true",
    "set_config(text, text, boolean) RETURNS text": "$2",
}


@pytest.fixture
def others_job(transactional_db: None) -> Job:
    """A job that the role has not enqueued, and that has been tried once."""
    return enqueue(tasks.noop.using(metadata={"card": SECRET}))


@pytest.mark.promise("enqueuer-own-results")
def test_a_result_is_for_the_role_that_has_enqueued(
    installed: Roles, login: Login, connect: Connect, others_job: Job
) -> None:
    web, shop = login(installed.web), login(installed.shop)
    job = value(web, f"SELECT pgqueue_enqueue('{ECHO}', '[40, 2]')")
    broken = value(web, "SELECT pgqueue_enqueue('tests.app.worker_tasks.raise_odd', max_attempts => 1)")
    assert value(web, "SELECT status FROM pgqueue_result(%s)", job) == "pending"
    run_due()
    said = "SELECT status, is_finished, result, attempts, error_class FROM pgqueue_result(%s)"
    assert web.execute(said, (job,)).fetchone() == ("done", True, 42, 1, None)
    assert web.execute(said, (broken,)).fetchone() == ("failed", True, None, 1, "builtins.TypeError")
    see = "SELECT count(*) FROM pgqueue_result(%s)"
    assert [value(shop, see, job), value(web, see, others_job.pk), value(shop, see, 0)] == [0, 0, 0]
    owner = connect()
    assert [value(owner, see, job), value(owner, see, others_job.pk)] == [1, 1]
    assert Job.objects.get(pk=others_job.pk).context is None, "a job of the owner carries nothing"


def test_a_bulk_and_a_forged_name_are_marked_too(installed: Roles, login: Login) -> None:
    """Python enqueues many with one context for all; a caller may pass there what it likes."""
    web = login(installed.web)
    ids = value(web, MANY, None, None, None) + value(
        web, MANY, [None, '{"group_key": "g"}'], '{"user": 5}', None
    )
    assert {json.dumps(job.context) for job in Job.objects.filter(pk__in=ids[:2])} == {
        json.dumps({"role": installed.web})
    }
    for job in Job.objects.filter(pk__in=ids[2:]):
        assert job.context == {"user": 5, "role": installed.web}
    for context in ('{"role": "postgres"}', '{"vars": 5}'):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            web.execute(MANY, (None, context, None))
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            web.execute("SELECT pgqueue_enqueue('a.b', options => %s)", (f'{{"context": {context}}}',))


@pytest.mark.parametrize("options", [
    '{"batch": %s}', '{"after": [%s]}', '{"after_items": [1]}',
    '{"unique_key": "k", "on_conflict": "replace"}', '{"unique_key": "k", "on_conflict": "earliest"}',
])  # fmt: skip
def test_options_that_touch_jobs_of_others_are_refused(
    installed: Roles, login: Login, connect: Connect, others_job: Job, options: str
) -> None:
    web = login(installed.web)
    batch = value(connect(autocommit=True), "SELECT pgqueue_open_batch('theirs')")
    given = options.replace("%s", str(batch if "batch" in options else others_job.pk))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may only enqueue"):
        web.execute("SELECT pgqueue_enqueue('a.b', options => %s)", (given,))
    allowed = '{"unique_key": "k", "on_conflict": "existing", "limit_key": "a/1", "group_key": "g"}'
    first = value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", allowed)
    assert value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", allowed) == first


def test_python_enqueues_with_this_role(installed: Roles, transactional_db: None) -> None:
    with alias("web", USER=installed.web, PASSWORD=PASSWORD):
        job = enqueue(tasks.add.using(database="web"), 40, 2)
        assert sql("SELECT status FROM pgqueue_result(%s)", job.pk, using="web") == "pending"
    # Whoever may become the role by SET ROLE enqueues as the role, too.
    with alias("as_role", OPTIONS={"assume_role": installed.shop}):
        job = enqueue(tasks.add.using(database="as_role"), 40, 2)
    assert Job.objects.get(pk=job.pk).context == {"role": installed.shop}


@pytest.mark.promise("enqueuer-no-functions")
def test_every_other_function_is_refused(installed: Roles, login: Login, others_job: Job) -> None:
    """The functions come from the catalogs. They get the id of a job of somebody else."""
    before = contents()
    found = outcomes(login(installed.web), others_job.pk)
    ran = {name for name, outcome in found.items() if outcome != "42501"}
    decided = set().union(*HARMLESS.values()) | {*CALLED}
    assert ran - decided == set(), "decide whether a role that may only enqueue may run them"
    assert decided - ran == set(), "these are refused"
    assert contents() == before


@pytest.mark.promise("enqueuer-no-functions")
def test_functions_with_the_rights_of_their_owner_are_not_for_everybody(
    installed: Roles, connect: Connect
) -> None:
    query = """
        SELECT proname, has_function_privilege('public', oid, 'EXECUTE'),
            has_function_privilege(%s, oid, 'EXECUTE'), 'search_path=public, pg_temp' = ANY (proconfig)
        FROM pg_proc
        WHERE proname ~ '^_?pgqueue_' AND prosecdef AND prorettype <> 'trigger'::regtype ORDER BY 1
    """
    assert connect().execute(query, (installed.web,)).fetchall() == [
        ("_pgqueue_enqueue", False, True, True),
        ("_pgqueue_enqueue_many", False, True, True),
        ("_pgqueue_receive", False, True, True),
        ("_pgqueue_rotate", False, False, True),
        ("_pgqueue_shard", False, True, True),
        ("_pgqueue_take_back", False, True, True),
        ("pgqueue_enqueue", False, True, True),
        ("pgqueue_result", False, True, True),
        ("pgqueue_tenant", True, True, True),
    ]


@pytest.mark.promise("enqueuer-no-tables")
def test_no_table_can_be_read_or_changed(
    installed: Roles, login: Login, connect: Connect, others_job: Job
) -> None:
    """Neither a table, nor a leaf, nor a leaf that is added later; neither a sequence."""
    web, owner = login(installed.web), connect(autocommit=True)
    with changed(owner, *LATER_LEAF):
        relations = owner.execute(
            "SELECT relname, relkind = 'S' FROM pg_class"
            " WHERE relname LIKE 'pgqueue\\_%' AND relkind IN ('r', 'p', 'S')"
        ).fetchall()
        assert {"pgqueue_job", "pgqueue_job_live", "pgqueue_job_past_3", "pgqueue_job_later"} <= {
            name for name, _ in relations
        }
        for name, is_sequence in relations:
            statements = ["SELECT 1 FROM {}", "SELECT count({}) FROM {}"]
            if is_sequence:
                statements = ["SELECT nextval('{}')", "SELECT setval('{}', 1)", "SELECT last_value FROM {}"]
            else:
                statements += [
                    "INSERT INTO {} DEFAULT VALUES", "DELETE FROM {}", "TRUNCATE {}", "COPY {} TO STDOUT",
                    "LOCK {} IN ACCESS SHARE MODE", "ALTER TABLE {} DISABLE TRIGGER ALL", "DROP TABLE {}",
                    "CREATE TRIGGER mine AFTER INSERT ON {} EXECUTE FUNCTION _pgqueue_wake()",
                ]  # fmt: skip
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege), web.transaction():
                    web.execute(statement.replace("{}", name))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("UPDATE pgqueue_job SET args = args RETURNING args")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute(
                "CREATE FUNCTION public._pgqueue_problem() RETURNS text LANGUAGE sql AS 'SELECT NULL'"
            )


@pytest.mark.promise("enqueuer-search-path")
def test_names_in_the_search_path_of_the_caller_are_not_used(
    installed: Roles, login: Login, connect: Connect
) -> None:
    """The role makes functions, operators and tables with the names that the functions use, and puts them
    before pg_catalog. They would run with the rights of the owner, at the commit too.
    """
    owner, web = connect(autocommit=True), login(installed.web)
    with changed(owner, f'CREATE SCHEMA evil AUTHORIZATION "{installed.web}"', "DROP SCHEMA evil CASCADE"):
        web.execute("CREATE TABLE evil.seen (who name)")
        web.execute("GRANT INSERT ON evil.seen TO PUBLIC; GRANT USAGE ON SCHEMA evil TO PUBLIC")
        for signature, answer in EVIL.items():
            web.execute(
                f"CREATE FUNCTION evil.{signature} LANGUAGE plpgsql AS"
                f" $$BEGIN INSERT INTO evil.seen VALUES (current_user); RETURN {answer}; END$$"
            )
        for operator, right, function in (
            ("||", "text", "join_text"), ("||", "oid", "join_any"), ("=", "text", "same"),
        ):  # fmt: skip
            web.execute(
                f"CREATE OPERATOR evil.{operator}"
                f" (LEFTARG = text, RIGHTARG = {right}, FUNCTION = evil.{function})"
            )
        for table in ("pgqueue_job", "pgqueue_job_live", "pgqueue_status"):
            web.execute(f"CREATE TABLE evil.{table} (id bigint); CREATE TEMP TABLE {table} (id bigint)")
        web.execute("SET search_path = evil, pg_temp, pg_catalog, public")
        with web.transaction():
            job = value(web, "SELECT pgqueue_enqueue('a.b', options => '{\"unique_key\": \"k\"}')")
        web.execute("SELECT pgqueue_result(%s)", (job,))
        # Its own statements use them, with its own rights. Nothing else does.
        assert {who for (who,) in owner.execute("SELECT who FROM evil.seen")} <= {installed.web}
        assert Job.objects.get(pk=job).context == {"role": installed.web}


def contents() -> Any:
    """Return what the tables hold, as one value."""
    tables = "SELECT relname FROM pg_class WHERE relname LIKE 'pgqueue\\_%' AND relkind IN ('r', 'p')"
    one = "SELECT md5(string_agg(row::text, '' ORDER BY row::text)) FROM {} AS row"
    return {name: sql(one.format(name)) for (name,) in fetch(tables)}


LARGE = "x" * 2_000_000


def test_the_server_decides_how_large_a_job_may_be(
    installed: Roles, login: Login, connect: Connect, session: Session
) -> None:
    """Not the limit that the caller passes, by whatever function."""
    web, owner = login(installed.web), connect(autocommit=True)
    ask = "SELECT pgqueue_enqueue('a.b', jsonb_build_array(%s::text), options => %s)"
    options = '{"max_json_bytes": 999999999}'
    many = """
        SELECT ids FROM _pgqueue_enqueue_many(
            1, ARRAY['a.b'], ARRAY[jsonb_build_array(%s::text)], '{"{}"}', '{"{}"}', ARRAY['default'],
            ARRAY[0], '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', NULL, NULL, NULL)
    """
    tell_retention(session)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="but the limit is 1048576"):
        web.execute(ask, (LARGE, options))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="but the limit is 1048576"):
        web.execute(many, (LARGE,))
    assert value(web, ask, "x" * 1_000_000, options)
    assert value(owner, ask, LARGE, options)
    with override_settings(PGQUEUE={"MAX_JSON_BYTES": 3_000_000}):
        tell_retention(session)
    broken = "SELECT pgqueue_enqueue(%s, jsonb_build_array(%s::text), max_attempts => 1, options => %s)"
    job = value(web, broken, "tests.app.worker_tasks.raise_odd", LARGE, options)
    tell_retention(session)  # as before
    run_due()
    assert Job.objects.get(pk=job).status == "failed"
    assert retry(job) == 1, "it was accepted once"
    assert Job.objects.get(pk=job).status == "pending"


# --- A role that may connect, and nothing else. It can send notifications and take advisory locks


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


@pytest.mark.promise("stranger")
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
        until(lambda: not worker.producer._inbox._named_jobs)
        assert [fresh(job).status for job in jobs] == ["running", "running"]
        assert tasks.SEEN == []
        assert cancel(jobs[0]) == cancel(jobs[1]) == 1
        until(lambda: [fresh(job).status for job in jobs] == ["cancelled", "cancelled"])


DUTIES = ["alerts", "batches", "depth", "edges", "failures", "kept", "lines", "recover", "ring", "schedules",
          "statistics", "unpause"]  # fmt: skip


@pytest.fixture
def hoarder(stranger: Connection) -> Connection:
    """A stranger that holds every advisory lock with which duties were guarded once."""
    for kind, names in (("maintenance", DUTIES), ("schedules", ["synchronize"])):
        for name in names:
            stranger.execute(
                "SELECT pg_advisory_lock(hashtextextended('pgqueue/' || oid || %s, 0)) FROM pg_class"
                " WHERE relname = 'pgqueue_job_live'",
                (f"/{kind}/{name}",),
            )
    return stranger


@pytest.mark.promise("stranger")
def test_one_session_at_a_time_has_a_duty(hoarder: Connection, connect: Connect) -> None:
    """Whatever advisory locks somebody holds. It lasts until the end of the transaction."""
    ask = "SELECT _pgqueue_on_duty(%s)"
    one, other = connect(), connect()
    for duty in DUTIES:
        assert [value(each, ask, duty) for each in (one, one, other)] == [True, True, False], duty
        one.commit()
        assert value(other, ask, duty) is True, duty


@pytest.fixture
def no_duties(connect: Connect) -> Iterator[None]:
    """The table is empty, as after a restore without data."""
    one = connect(autocommit=True)
    one.execute("DELETE FROM pgqueue_duty")
    yield
    one.execute("INSERT INTO pgqueue_duty SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (DUTIES,))


def test_a_duty_whose_row_was_lost_is_made_again(connect: Connect, no_duties: None) -> None:
    one, other = connect(), connect()
    ask = "SELECT _pgqueue_on_duty('ring')"
    assert value(one, ask) is True
    waits = start(other, value, ask).blocked()
    one.commit()
    assert waits.result() is False
    other.commit()
    assert value(other, ask) is True
    other.commit()


@pytest.mark.promise("stranger")
def test_no_function_leaves_a_duty_to_an_advisory_lock(connect: Connect) -> None:
    one = connect()
    assert value(one, "SELECT array_agg(name::text ORDER BY name) FROM pgqueue_duty") == DUTIES
    guarded = "SELECT array_agg(proname::text ORDER BY proname) FROM pg_proc WHERE strpos(prosrc, %s) > 0"
    assert value(one, guarded, "_pgqueue_lock_key('maintenance'") is None
    assert value(one, guarded, "_pgqueue_on_duty('") == [
        "_pgqueue_count_depth", "_pgqueue_fold_failures", "_pgqueue_forget_figures",
        "_pgqueue_recover_dead", "_pgqueue_repair_batches", "_pgqueue_repair_edges",
        "_pgqueue_repair_lines", "_pgqueue_roll_up", "_pgqueue_rotate",
        "_pgqueue_sweep", "_pgqueue_tell_failures", "_pgqueue_unpause",
    ]  # fmt: skip


def test_who_may_only_read_has_no_duty(connect: Connect) -> None:
    one = connect()
    with roles("reader") as (name,), one.transaction(force_rollback=True):
        one.execute(f'GRANT SELECT ON pgqueue_duty TO "{name}"')
        one.execute(f'SET LOCAL ROLE "{name}"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            one.execute("SELECT name FROM pgqueue_duty FOR UPDATE")


@pytest.mark.parametrize("kind", ["limit", "room", "worker", "none of ours"])
def test_a_lock_that_a_stranger_holds_is_named(
    stranger: Connection, connect: Connect, session: Session, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """By health and the log. A worker's own locks, and those of other applications, are not."""
    owner = connect(autocommit=True)
    job = enqueue(ship, 7)
    owner.execute("SELECT pgqueue_set_limit('queue', 'slow', 5)")
    WorkerFactory.create(id=7, heartbeat_at=timezone.now())
    name = {"limit": fresh(job).limit_key, "room": "slow", "worker": "7"}.get(kind, "x")
    owner.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('limit', 'a key that has no line'))")
    assert foreign_locks("default") == []
    stranger.execute(
        "SELECT pg_advisory_lock(%s)", (value(owner, "SELECT _pgqueue_lock_key(%s, %s)", kind, name),)
    )
    tell_foreign_locks(session)
    tell_foreign_locks(session)
    said = f"(process {stranger.info.backend_pid}) holds a lock of the queue without a right to it"
    if kind == "none of ours":
        assert foreign_locks("default") == []
        assert said not in caplog.text
        return
    assert [problem.text for problem in health("default").problems if said in problem.text]
    assert "foreign_lock" in {problem.kind for problem in full_health("default").problems}
    assert caplog.text.count(said) == 1
    assert f"pg_terminate_backend({stranger.info.backend_pid})" in caplog.text


def test_a_job_whose_key_a_stranger_has_locked_runs_afterwards(
    stranger: Connection, connect: Connect
) -> None:
    job = enqueue(ship, 7)
    key = value(connect(), "SELECT _pgqueue_lock_key('limit', %s)", fresh(job).limit_key)
    stranger.execute("SELECT pg_advisory_lock(%s)", (key,))
    with working():
        after = enqueue(tasks.noop)
        until(lambda: fresh(after).status == "done")
        assert fresh(job).status == "pending"
        stranger.execute("SELECT pg_advisory_unlock(%s)", (key,))
        tasks.gate("").set()
        until(lambda: fresh(job).status == "done")
