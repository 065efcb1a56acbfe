"""``manage.py pgqueue roles``: it prints or runs, again and again, and takes everything back."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from django_pgqueue.models import Job
from tests.support.databases import alias, fresh_database, in_schema, migrate, roles
from tests.support.jobs import value
from tests.support.sessions import Connect, open_raw

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = """
    SELECT jsonb_object_agg(one.name, sorted.rights) FROM (
        SELECT relname AS name, relacl AS rights, '' AS more FROM pg_class WHERE relname LIKE 'pgqueue\\_%'
        UNION ALL
        SELECT proname, proacl, prosecdef || proconfig::text FROM pg_proc WHERE proname ~ '^_?pgqueue_'
        UNION ALL
        SELECT 'schema', nspacl, '' FROM pg_namespace WHERE nspname = 'public'
    ) AS one, LATERAL (
        SELECT one.more || coalesce(string_agg(item::text, ' ' ORDER BY item::text), '') AS rights
        FROM unnest(one.rights) AS each (item)
    ) AS sorted
"""


def command(*arguments: str) -> str:
    """Run the command, and return what it prints."""
    out = StringIO()
    call_command("pgqueue", "roles", *arguments, stdout=out)
    return out.getvalue()


def test_what_it_prints_is_what_it_does_and_it_can_be_repeated(connect: Connect) -> None:
    owner = connect(autocommit=True)
    with roles("a", "b") as (enqueuer, worker):
        names = ["--enqueuer", enqueuer, "--worker", worker]
        # The first time leaves owners' rights in the catalogs that were implied before.
        command("--apply", *names)
        assert command("--apply", "--drop", *names) == f"Took the rights of {enqueuer} and {worker}.\n"
        before = value(owner, RIGHTS)
        assert value(owner, "SELECT count(*) FROM pg_roles WHERE rolname IN (%s, %s)", enqueuer, worker) == 0
        assert command("--apply", *names) == f"Gave rights to {enqueuer} and {worker}.\n"
        applied = value(owner, RIGHTS)
        assert applied != before
        command("--apply", *names)
        assert value(owner, RIGHTS) == applied
        owner.execute(command("--drop", *names))
        owner.execute(command("--drop", *names))
        assert value(owner, RIGHTS) == before
        owner.execute(command(*names))
        assert value(owner, RIGHTS) == applied
        command("--apply", "--drop", *names)


def test_an_owner_who_is_no_superuser_in_a_schema_of_its_own() -> None:
    """It needs CREATEROLE and nothing else."""
    with roles("owner") as (owner,), fresh_database() as database, open_raw() as administrator:
        administrator.execute(f'ALTER ROLE "{owner}" CREATEROLE')
        names = ["--enqueuer", f"{owner}_a", "--worker", f'{owner}_b "quoted"']
        with alias("fresh", NAME=database) as fresh, connections[fresh].cursor() as cursor:
            cursor.execute(f'CREATE SCHEMA "own jobs" AUTHORIZATION "{owner}"')
        with alias("made", NAME=database, OPTIONS=in_schema('"own\\ jobs"', owner)) as made:
            migrate(made)
            command("--apply", *names, "--database", made)
            role = f"{owner}_a"
            with alias("used", NAME=database, OPTIONS=in_schema("public", role)) as used:
                with connections[used].cursor() as cursor:
                    cursor.execute("""SELECT "own jobs".pgqueue_enqueue('a.b')""")
                    job = cursor.fetchone()
                    cursor.execute('SELECT status FROM "own jobs".pgqueue_result(%s)', job)
                    assert cursor.fetchone() == ("pending",)
                assert Job.objects.using(made).get().context == {"role": role}
            command("--apply", "--drop", *names, "--database", made)
        count = administrator.execute(
            "SELECT count(*) FROM pg_roles WHERE rolname LIKE %s", (f"{owner}\\__%",)
        )
        assert count.fetchone() == (0,)


def test_a_role_that_owns_something_else_stays_without_rights(connect: Connect) -> None:
    owner = connect(autocommit=True)
    with roles("a", "b") as (enqueuer, worker):
        owner.execute(f'CREATE SCHEMA theirs AUTHORIZATION "{worker}"')
        names = ["--enqueuer", enqueuer, "--worker", worker]
        command("--apply", *names)
        command("--apply", "--drop", *names)
        assert value(owner, "SELECT count(*) FROM pg_roles WHERE rolname IN (%s, %s)", enqueuer, worker) == 1
        assert not value(owner, "SELECT has_table_privilege(%s, 'pgqueue_job', 'SELECT')", worker)


@pytest.mark.parametrize(
    ("grant", "what"),
    [
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "create objects in the schema public"),
        ("GRANT SELECT ON pgqueue_job_past_3 TO PUBLIC", "select rows of pgqueue_job_past_3"),
        ("GRANT SELECT (args) ON pgqueue_job TO PUBLIC", "select rows of pgqueue_job"),
        ("GRANT DELETE ON pgqueue_pause TO PUBLIC", "delete rows of pgqueue_pause"),
    ],
)
@pytest.mark.promise("roles-not-more")
def test_rights_that_come_from_elsewhere_are_an_error(connect: Connect, grant: str, what: str) -> None:
    owner = connect(autocommit=True)
    revoke = grant.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM ")
    with roles("a", "b") as (enqueuer, worker):
        names = ["--enqueuer", enqueuer, "--worker", worker]
        owner.execute(grant)
        try:
            with pytest.raises(CommandError, match=f"{enqueuer} can still {what}"):
                command("--apply", *names)
        finally:
            owner.execute(revoke)
            command("--apply", "--drop", *names)


def test_errors_say_what_to_do(connect: Connect) -> None:
    with pytest.raises(CommandError, match="must name two roles"):
        command("--enqueuer", "one", "--worker", "one")
    with pytest.raises(CommandError, match=r"Nothing was changed.*reserved"):
        command("--apply", "--enqueuer", "pg_mine")
