"""Roles of ``manage.py pgqueue tenants``: each way around the policies, what is refused, what stays seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from runpy import run_path

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.http import Http404
from django.test import RequestFactory

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.checks.database import database_problems
from django_pgqueue.models import Job
from django_pgqueue.postgres.roles import keep_policies
from django_pgqueue.postgres.session import connect as open_session
from tests.app import worker_tasks as tasks
from tests.docs.shop import EXAMPLES
from tests.support.databases import alias
from tests.support.jobs import claim, value
from tests.support.sessions import Connect, Connection
from tests.support.workers import run_due

from .conftest import LATER_LEAF, MANY, PASSWORD, Login, Roles, changed

LEAVES = ["pgqueue_job", "pgqueue_job_live", "pgqueue_job_kept"]
LEAVES += [f"pgqueue_job_past_{n}" for n in range(1, 9)]
#: What has no tenant, or belongs to all.
OTHERS = [
    "pgqueue_window", "pgqueue_limit", "pgqueue_stat", "pgqueue_stat_rollup", "pgqueue_schedule",
    "pgqueue_worker", "pgqueue_failure_group", "pgqueue_step", "pgqueue_progress", "pgqueue_batch",
    "pgqueue_tenant_role", "pgqueue_job_id_seq",
]  # fmt: skip


@pytest.fixture
def separated(installed: Roles, transactional_db: None) -> Iterator[Roles]:
    """The logins ``web`` and ``shop`` belong to two tenants, and ``runner`` is a worker."""
    given = ["--role", f"{installed.web}=acme", "--role", f"{installed.shop}=bolt"]
    call_command("pgqueue", "tenants", "--apply", "--group", f"{installed.enqueuer}_t", *given)
    try:
        yield installed
    finally:
        call_command("pgqueue", "tenants", "--apply", "--drop", "--group", f"{installed.enqueuer}_t")
        connections["default"].close()


@pytest.fixture
def web(separated: Roles, login: Login) -> Connection:
    """A session of a role of acme."""
    return login(separated.web)


def one_of_each() -> tuple[Job, Job, Job]:
    """Jobs of acme, of bolt, and of nobody."""
    return (
        enqueue(tasks.add.using(tenant="acme"), 1),
        enqueue(tasks.add.using(tenant="bolt"), 2),
        enqueue(tasks.noop),
    )


def test_a_role_sees_the_jobs_of_its_tenant_and_changes_none(web: Connection) -> None:
    mine, theirs, nobodys = one_of_each()
    see = "SELECT count(*) FROM pgqueue_result(%s)"
    assert [value(web, see, job.pk) for job in (mine, theirs, nobodys)] == [1, 0, 0]
    for table in LEAVES[:2]:
        assert web.execute(f"SELECT id, tenant FROM {table}").fetchall() == [(mine.pk, "acme")]
    assert value(web, "SELECT pgqueue_tenant()") == "acme"
    for statement in (
        "DELETE FROM {}", "UPDATE {} SET priority = 5", "TRUNCATE {}", "INSERT INTO {} DEFAULT VALUES",
        "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
    ):  # fmt: skip
        for leaf in LEAVES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                web.execute(statement.format(leaf))
    run_due()
    for table in ("pgqueue_job", *LEAVES[3:]):
        assert {pk for (pk,) in web.execute(f"SELECT id FROM {table}")} <= {mine.pk}
    assert value(web, "SELECT count(*) FROM pgqueue_job") == 1


def test_neither_what_has_no_tenant_nor_a_function_leads_around(web: Connection) -> None:
    _, theirs, _ = one_of_each()
    calls = [
        "_pgqueue_rotate()", "pgqueue_cancel(ARRAY[{theirs}])", "pgqueue_retry(ARRAY[{theirs}])",
        "pgqueue_edit(ARRAY[{theirs}], priority => 5)", "nextval('pgqueue_job_id_seq')",
        "pgqueue_enqueue('a.b', options => '{{\"tenant\": \"bolt\"}}')",
        "pgqueue_enqueue('a.b', options => '{{\"after\": [{theirs}]}}')",
    ]  # fmt: skip
    for what in [*(f"* FROM {relation}" for relation in OTHERS), *calls]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute(f"SELECT {what.format(theirs=theirs.pk)}")
    assert Job.objects.get(pk=theirs.pk).status == "pending"


def test_it_enqueues_for_its_tenant_alone(web: Connection, separated: Roles) -> None:
    job = Job.objects.get(pk=value(web, "SELECT pgqueue_enqueue('a.b')"))
    assert (job.tenant, job.context) == ("acme", {"role": separated.web})
    for options, context in ((None, None), ([None, '{"unique_key": "k"}'], '{"user": 5}')):
        ids = value(web, MANY, options, context, "acme" if context else None)
        assert {job.tenant for job in Job.objects.filter(pk__in=ids)} == {"acme"}
    assert Job.objects.get(pk=ids[1]).unique_key == "acme:k"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        web.execute(MANY, ([None, '{"tenant": "bolt"}'], None, None))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        web.execute(MANY, (None, None, "bolt"))
    # The context and the tenant that Python passes for all jobs are taken as they are, but SQL can pass any.
    before = Job.objects.count()
    for context, tenant in (
        ('{"role": "postgres"}', None), ('{"tenant": "acme"}', None), ("[]", None), (None, "a:b"),
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            web.execute(MANY, (None, context, tenant))
    assert Job.objects.count() == before


def test_python_enqueues_with_such_a_role(separated: Roles) -> None:
    with alias("as_web", USER=separated.web, PASSWORD=PASSWORD):
        job = enqueue(tasks.add.using(database="as_web"), 1)
        assert Job.objects.using("as_web").get().pk == job.pk
        ids = enqueue_many([tasks.add.using(database="as_web", tenant="acme").bind(2)]).ids
        assert Job.objects.using("as_web").get(pk=ids[0]).tenant == "acme"


def test_a_role_without_a_tenant_gives_none(separated: Roles, login: Login, connect: Connect) -> None:
    connect(autocommit=True).execute("DELETE FROM pgqueue_tenant_role WHERE tenant = 'bolt'")
    shop = login(separated.shop)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not enqueue for the tenant bolt"):
        shop.execute("SELECT pgqueue_enqueue('a.b', options => '{\"tenant\": \"bolt\"}')")
    one_of_each()
    assert value(shop, "SELECT count(*) FROM pgqueue_job") == 0


def test_the_key_of_another_tenant_is_no_obstacle(web: Connection) -> None:
    enqueue(tasks.add.using(tenant="bolt", unique_key="k"), 1)
    options = '{"unique_key": "k", "unique_window": 60, "limit_key": "7"}'
    own = value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", options)
    assert value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", options) == own
    assert Job.objects.get(pk=own).limit_key == "a.b/acme:7"


def test_neither_statistics_nor_a_leaky_function_show_others(web: Connection, connect: Connect) -> None:
    enqueue(tasks.add.using(tenant="bolt", metadata={"card": "4111"}), 1)
    mine, *_ = one_of_each()
    connect(autocommit=True).execute("ANALYZE pgqueue_job")
    assert value(web, "SELECT count(*) FROM pg_stats WHERE tablename LIKE 'pgqueue_job%'") == 0
    web.execute("CREATE FUNCTION pg_temp.leak(jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
                " $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$")  # fmt: skip
    heard: list[str] = []
    web.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    assert web.execute("SELECT id FROM pgqueue_job WHERE pg_temp.leak(metadata)").fetchall() == [(mine.pk,)]
    assert "4111" not in "".join(heard)


def test_no_error_names_the_key_of_another(web: Connection) -> None:
    """Without the prefix, the unique index would answer with the key."""
    theirs = enqueue(tasks.add.using(tenant="bolt", unique_key="card 4111"), 1)
    options = '{"unique_key": "%s", "on_conflict": "raise"}'
    assert value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", options % "card 4111") != theirs.pk
    # Its own key is taken, so this way would name a key. That of another, with its prefix, is free.
    with pytest.raises(psycopg.errors.UniqueViolation, match="card 4111"):
        web.execute("SELECT pgqueue_enqueue('a.b', options => %s)", [options % "card 4111"])
    guessed = value(web, "SELECT pgqueue_enqueue('a.b', options => %s)", options % "bolt:card 4111")
    assert Job.objects.get(pk=guessed).unique_key == "acme:bolt:card 4111"


def test_notifications_show_the_queue_and_the_id_alone(web: Connection, connect: Connect) -> None:
    """A login listens while a worker sleeps, and another's job is enqueued, runs, and is asked to stop."""
    owner = connect(autocommit=True)
    channel = value(owner, "SELECT _pgqueue_channel()")
    web.execute(f'LISTEN "{channel}"')
    owner.execute("SELECT pg_advisory_lock_shared(_pgqueue_lock_key('sleep', ''))")
    secret = tasks.add.using(tenant="bolt", unique_key="4111", metadata={"card": "4111"})
    theirs = enqueue(secret, 4111)
    assert [row.id for row in claim(owner)] == [theirs.pk]
    owner.execute("SELECT pgqueue_request_stack(%s)", (theirs.pk,))
    assert cancel(theirs)
    owner.execute("SELECT pg_notify(%s, 'the end')", (channel,))  # so all others have come before it
    heard = []
    for note in web.notifies(timeout=10):
        heard.append(note.payload)
        if note.payload == "the end":
            break
    assert heard == ["wake default", f"stack {theirs.pk}", f"cancel {theirs.pk}", "the end"]
    assert web.execute("SELECT * FROM pgqueue_result(%s)", (theirs.pk,)).fetchall() == []


def test_workers_see_and_run_all(separated: Roles) -> None:
    jobs = one_of_each()
    with alias("as_worker", USER=separated.runner, PASSWORD=PASSWORD) as name:
        assert database_problems(name) == []
        with closing(open_session(name)) as session:
            assert len(session.rows("SELECT id FROM pgqueue_job_live")) == len(jobs)
    with alias("as_web", USER=separated.web, PASSWORD=PASSWORD) as name:
        with closing(open_session(name)) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.rows("SELECT id FROM pgqueue_job_live")
        (message,) = database_problems(name)
    assert (message.id, "pgqueue_job_live" in message.msg) == ("pgqueue.E028", True)
    assert "BYPASSRLS" in str(message.hint)


def test_a_view_lets_users_cancel_the_jobs_of_their_tenant(separated: Roles, login: Login) -> None:
    """The view of the page, with the role of workers. The role of the tenant itself may not, see above."""
    mine, theirs, _ = one_of_each()
    request = RequestFactory().post("/")
    request.user = User(username="acme")
    view = run_path(str(EXAMPLES / "shop" / "cancel_views.py"))["cancel_own"]
    with alias("staff", USER=separated.runner, PASSWORD=PASSWORD):
        with pytest.raises(Http404):
            view(request, pk=theirs.pk)
        assert view(request, pk=mine.pk).content == b'{"cancelled": true}'
    assert [Job.objects.get(pk=job.pk).status for job in (mine, theirs)] == ["cancelled", "pending"]


def test_a_leaf_that_comes_later_is_found_and_covered(web: Connection, connect: Connect) -> None:
    with changed(connect(autocommit=True), *LATER_LEAF):
        (message,) = [each for each in database_problems("default") if each.id == "pgqueue.W019"]
        assert "pgqueue_job_later" in message.msg
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("SELECT FROM pgqueue_job_later")
        keep_policies("default")  # as after migrate
        assert "pgqueue.W019" not in {each.id for each in database_problems("default")}


def test_a_right_that_comes_from_elsewhere_is_an_error(separated: Roles, connect: Connect) -> None:
    web, group = separated.web, f"{separated.enqueuer}_t"
    right = "TRUNCATE ON pgqueue_job_live"
    with (
        changed(connect(autocommit=True), f'GRANT {right} TO "{web}"', f'REVOKE {right} FROM "{web}"'),
        pytest.raises(Exception, match="can still truncate rows of pgqueue_job_live"),
    ):
        call_command("pgqueue", "tenants", "--apply", "--group", group, "--role", f"{web}=acme")


def test_it_is_printed_and_taken_back(
    separated: Roles, capsys: pytest.CaptureFixture[str], connect: Connect
) -> None:
    call_command("pgqueue", "tenants", "--role", "web_acme=acme", "--sees-all", "reports")
    printed = capsys.readouterr().out
    assert printed.startswith("BEGIN;")
    assert printed.count("ENABLE ROW LEVEL SECURITY") == len(LEAVES)
    assert "VALUES ('web_acme', 'acme')" in printed
    assert '"reports"' in printed
    call_command("pgqueue", "tenants", "--apply", "--drop", "--group", f"{separated.enqueuer}_t")
    query = "SELECT count(*) FROM pg_policy WHERE polname LIKE 'pgqueue%'"
    owner = connect(autocommit=True)
    assert (value(owner, query), value(owner, "SELECT count(*) FROM pgqueue_tenant_role")) == (0, 0)
    with pytest.raises(Exception, match="write ROLE=TENANT"):
        call_command("pgqueue", "tenants", "--role", "web_acme")
