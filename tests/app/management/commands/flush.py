"""A replacement for Django's ``flush`` between tests. It empties only tables that are not empty.

Permissions and content types are kept, so that they need not be created again. Creating them and truncating
four hundred relations took longer than most tests.

The rows of small tables are deleted, because TRUNCATE creates new files for a table and all its indexes. For
the four tables of a job that has run, this takes 29 ms of processor time, and deleting the rows takes 2 ms.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.errors import DeadlockDetected

STAY = {"auth_permission", "django_content_type"}
WITHOUT_MODEL = {"pgqueue_depth"}
"""Workers count the live jobs once a minute, and pages show these counts."""
SMALL = 64 * 1024  # bytes; a larger table is truncated, so that dead rows do not add up

_NOT_EMPTY_SQL = """
    WITH given AS (SELECT to_regclass(quote_ident(name)) AS id FROM unnest(%s::text[]) AS name)
    SELECT leaf.id::regclass::text, pg_relation_size(leaf.id) FROM (
        SELECT id FROM given
        UNION SELECT tree.relid FROM given, pg_partition_tree(given.id) AS tree WHERE tree.isleaf
    ) AS leaf
    WHERE pg_relation_size(leaf.id) > 0
"""


class Command(flush.Command):
    """Replaces Django's own command, because the commands of apps come first."""

    def handle(self, **options: Any) -> None:
        """Empty the tables of the models."""
        connection = connections[options["database"]]
        # The statement below passes over those that do not exist. To ask for them would take 3 ms.
        names = set(connection.introspection.django_table_names(only_existing=False))
        while True:
            try:
                _empty(connection, sorted((names | WITHOUT_MODEL) - STAY))
                return
            except OperationalError as error:
                # Race: the server may still be at work for a process that the test has killed.
                if not isinstance(error.__cause__, DeadlockDetected):
                    raise


def _empty(connection: BaseDatabaseWrapper, names: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_NOT_EMPTY_SQL, [names])
        found = cursor.fetchall()
        # Only a superuser can delete rows without triggers: foreign keys and the guards of the queue.
        is_superuser = connection.connection.info.parameter_status("is_superuser") == "on"
        small = [name for name, size in found if size <= SMALL and is_superuser]
        if tables := ", ".join(name for name, _ in found if name not in small):
            cursor.execute(f"TRUNCATE {tables} CASCADE")
        steps = ["SET session_replication_role = replica"] if small else []
        steps += [f"DELETE FROM {name}" for name in small]
        # At once: behind a pooler, each may have another session. The last resets what the test has set.
        cursor.execute("; ".join([*steps, "RESET ALL"]))
    connection.ensure_timezone()  # which the settings may set, too
