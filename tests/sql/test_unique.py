"""Unique keys in plain SQL."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, IntegrityError, connection, transaction

from django_pgqueue.models import Job, UniqueWindow

pytestmark = pytest.mark.django_db


def sql(query: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]


def enqueue(options: str, args: str = "[]", **more: str) -> int:
    given = "".join(f", {name} => {value}" for name, value in more.items())
    return int(sql(f"SELECT pgqueue_enqueue('a.b', '{args}', options => '{options}'{given})"))


def outcome() -> Any:
    return sql("SELECT current_setting('pgqueue.enqueue_outcome')")


def test_a_key_is_unique_while_its_job_waits() -> None:
    first = enqueue('{"unique_key": "k"}')
    assert outcome() == "created"
    job = Job.objects.get()
    assert (job.unique_key, job.unique_scope) == ("k", "waiting")
    assert enqueue('{"unique_key": "k", "max_json_bytes": 100}') == first
    assert outcome() == "existing"
    assert enqueue('{"unique_key": "k", "unique_scope": "live"}') != first
    assert outcome() == "created"


def test_replace_earliest_and_window() -> None:
    hour = "now() + interval '1 hour'"
    first = enqueue('{"unique_key": "k"}', run_after=hour)
    assert enqueue('{"unique_key": "k", "on_conflict": "replace"}', "[5]", run_after=hour) == first
    assert outcome() == "replaced"
    assert Job.objects.get().args == [5]
    due = Job.objects.get().run_after
    assert enqueue('{"unique_key": "k", "on_conflict": "earliest"}', "[6]") == first
    assert outcome() == "existing"
    assert Job.objects.get().run_after < due
    assert Job.objects.get().args == [5]
    enqueue('{"unique_key": "w", "unique_window": 1.5}')
    window = UniqueWindow.objects.get()
    assert (window.until - Job.objects.get(pk=window.job_id).enqueued_at).total_seconds() == 1.5


def test_raise_is_a_unique_violation() -> None:
    first = enqueue('{"unique_key": "k", "on_conflict": "raise"}')
    with (
        pytest.raises(IntegrityError, match=f"pgqueue: job {first} has the unique key 'k'") as caught,
        transaction.atomic(),
    ):
        enqueue('{"unique_key": "k", "on_conflict": "raise"}')
    assert getattr(caught.value.__cause__, "sqlstate", "") == "23505"
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("[]", "options must be a JSON object"),
        ('{"unique_keys": "k"}', "unknown option unique_keys: use max_json_bytes, unique_key"),
        ('{"unique_scope": "live"}', "the option unique_scope needs unique_key"),
        ('{"unique_window": 5}', "the option unique_window needs unique_key"),
        ('{"unique_key": 5}', "unique_key 5 must be a string"),
        ('{"unique_key": ""}', 'unique_key "" must be a string that is not empty'),
        ('{"unique_key": "%s"}' % ("x" * 201), "unique_key has 201 characters, but a job can store only 200"),
        ('{"unique_key": "k", "unique_scope": "done"}', 'unique_scope "done" must be "waiting" or "live"'),
        ('{"unique_key": "k", "unique_scope": null}', "unique_scope null must be"),
        ('{"unique_key": "k", "unique_window": 0}', "unique_window 0 must be more than 0 seconds"),
        ('{"unique_key": "k", "unique_window": -1}', "unique_window -1 must be more than 0"),
        ('{"unique_key": "k", "unique_window": 1e99}', "unique_window 1000.* at most 100 years"),
        ('{"unique_key": "k", "unique_window": "1 hour"}', 'unique_window "1 hour" must be a number'),
        ('{"unique_key": "k", "unique_window": null}', "unique_window null must be a number"),
        ('{"unique_key": "k", "on_conflict": "skip"}', 'on_conflict "skip" must be "existing", "replace"'),
    ],
)
def test_what_is_wrong_is_said(options: str, message: str) -> None:
    with pytest.raises(DataError, match=f"(?s)pgqueue: {message}") as caught, transaction.atomic():
        enqueue(options)
    assert getattr(caught.value.__cause__, "sqlstate", "") == "22023"
    assert not Job.objects.exists()


def test_the_function_for_many_names_the_place_of_bad_options() -> None:
    with pytest.raises(DataError, match="item 8: unique_key 5 must be a string"), transaction.atomic():
        sql(
            """
            SELECT _pgqueue_enqueue_many(
                7, array_fill('a.b'::text, '{2}'), array_fill('[]'::jsonb, '{2}'),
                array_fill('{}'::jsonb, '{2}'), array_fill('{}'::jsonb, '{2}'),
                array_fill('mail'::text, '{2}'), array_fill(0, '{2}'), NULL, NULL, NULL, array_fill(1, '{2}'),
                NULL, NULL, NULL, ARRAY[NULL, '{"unique_key": 5}']::jsonb[])
            """
        )
    assert not Job.objects.exists()


@pytest.mark.parametrize("characters", [1, 200])
def test_a_key_may_have_200_characters(characters: int) -> None:
    key = "é" * characters
    first = enqueue(f'{{"unique_key": "{key}"}}')
    assert enqueue(f'{{"unique_key": "{key}"}}') == first
    assert Job.objects.get().unique_key == key
