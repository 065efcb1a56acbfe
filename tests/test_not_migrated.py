"""New code on a database that is not migrated yet: workers refuse to start, the checks say why, and an
enqueue works or says what to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import CommandError
from django.db import ProgrammingError, connections
from django.db.migrations.loader import MigrationLoader
from django.test import override_settings

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.checks.database import check_database
from django_pgqueue.management import _conditions
from django_pgqueue.models import Job
from tests.app.tasks import noop
from tests.support.databases import alias, fresh_database, migrate

pytestmark = pytest.mark.django_db(transaction=True)

ENQUEUES: list[Callable[[], object]] = [lambda: enqueue(noop, 1), lambda: enqueue_many([noop.bind(1)])]


@pytest.mark.promise("not-migrated-worker", "not-migrated-enqueue")
def test_each_state_before_the_newest_migration() -> None:
    """This undoes all migrations, one at a time."""
    with fresh_database() as database, alias("fresh", NAME=database) as fresh:
        ours = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": {"database": fresh}}
        with override_settings(TASKS={"default": ours}):
            migrate(fresh)
            names = MigrationLoader(connections[fresh]).graph.nodes
            _newest, *before = sorted((name for app, name in names if app == "django_pgqueue"), reverse=True)
            for name in [*before, "zero"]:
                migrate(fresh, name)
                with pytest.raises(CommandError, match=r"manage\.py migrate --database fresh"):
                    _conditions.check_database(fresh)
                (warning,) = check_database(None, databases=[fresh])
                assert warning.id == "pgqueue.W003"
                for add in ENQUEUES:
                    enqueues(add, fresh)


def enqueues(add: Callable[[], object], fresh: str) -> None:
    """Enqueue one job, or raise the error that says what to do."""
    try:
        add()
    except ProgrammingError as error:
        assert f"manage.py migrate django_pgqueue --database={fresh}" in str(error)  # noqa: PT017 - or it works
    else:
        assert Job.objects.using(fresh).exists()
