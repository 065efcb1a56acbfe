"""JSON that SQL stores and Python would not: its job can be seen, and the others too."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from django_pgqueue import cancel
from django_pgqueue.encoding import TOO_DEEP
from django_pgqueue.models import Job

from .helpers import body, url

LEVELS = 3_000
POISON = {
    "digits": ("1e5000", "a number with 5,001 digits"),
    "lists": ("[" * LEVELS + "]" * LEVELS, TOO_DEEP.strip("<>")),
    "objects": ('{"a":' * LEVELS + "1" + "}" * LEVELS, TOO_DEEP.strip("<>")),
    "not a number": ("1e400", "1000000"),
    "keys": ('{"": {"": 1}, "__proto__": {"a": 1, "a": 2}}', "__proto__"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["args", "kwargs", "metadata", "result"])
@pytest.mark.parametrize("name", POISON)
def test_a_job_is_shown_with_whatever_sql_has_stored(root: Client, column: str, name: str) -> None:
    value, shown = POISON[name]
    whole = {"args": f"[1, {value}]", "result": value}.get(column, f'{{"key": {value}}}')
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
        (pk,) = cursor.fetchone()
        cursor.execute(f"UPDATE pgqueue_job_live SET {column} = %s::jsonb WHERE id = %s", [whole, pk])
    assert shown in body(root, url("change", pk))
    assert f"{pk}/change" in body(root, url("changelist"))
    if column in ("args", "kwargs"):
        assert root.get(url("clone", pk)).status_code == 200
    getattr(Job.objects.get(pk=pk), column)
    assert cancel(pk) == 1
