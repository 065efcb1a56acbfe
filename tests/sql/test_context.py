"""The context of a job in plain SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import DataError, connection

from django_pgqueue.models import Job

pytestmark = pytest.mark.django_db

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def enqueue(options: dict[str, Any]) -> Job:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('a.b', options => %s)", [json.dumps(options)])
        return Job.objects.get(pk=cursor.fetchone()[0])


@pytest.mark.parametrize("more", [{}, {"group_key": "g"}, {"unique_key": "k"}, {"limit_key": "a/b"}])
def test_it_is_stored_with_all_other_options(more: dict[str, str]) -> None:
    context = {"trace": TRACE, "language": "pt-br", "user": "u-5", "vars": {"a.b": None}}
    job = enqueue({"context": context, **more})
    assert (job.context, job.traceparent, job.user_id) == (context, TRACE["traceparent"], "u-5")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ([], r"context \[\] must be a JSON object"),
        ({"lang": "de"}, "unknown key lang: use language, trace, user or vars"),
        ({"language": 5}, "context language 5 must be the code"),
        ({"language": "../de"}, "must be the code"),
        ({"trace": "00-"}, "context trace .* must be a JSON object of strings"),
        ({"trace": {"traceparent": None}}, "must be a JSON object of strings"),
        ({"user": None}, "context user null must be the id of a user"),
        ({"vars": [1]}, r"context vars \[1\] must be a JSON object"),
        ({"vars": {"a.b": "x" * 17_000}}, "context takes 170.. bytes"),
    ],
)
def test_what_is_wrong_is_named(context: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        enqueue({"context": context})


def test_a_worker_in_another_language_gets_it() -> None:
    enqueue({"context": {"trace": TRACE}})
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_register_worker('go-1', '{}')")
        cursor.execute("SELECT context FROM pgqueue_claim('{}', 1, %s)", cursor.fetchone())
        assert cursor.fetchall() == [(json.dumps({"trace": TRACE}),)]
