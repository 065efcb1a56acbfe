"""The context and the kept logs of a job on its page."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils.html import strip_tags

from tests.support.factories import JobFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db

LINE = {
    "at": "2026-11-23T07:08:09.123+00:00",
    "level": "INFO",
    "logger": "shop.tasks",
    "message": "<b>sent</b>",
}
LOGS = [
    {"attempt": 1, "lines": [LINE, {**LINE, "message": "the end"}], "left_out": 3, "after": 1},
    {"attempt": 2, "lines": [{**LINE, "at": "odd"}]},
]


def page(client: Client, pk: int) -> str:
    return body(client, url("change", pk))


def test_the_logs_of_each_attempt_are_shown_the_last_one_first(root: Client) -> None:
    text = page(root, JobFactory.create(done=True, logs=LOGS).pk).split('id="pgqueue-logs"')[1]
    second, first = text.split("<pre")[1:3]
    assert "odd INFO shop.tasks: &lt;b&gt;sent&lt;/b&gt;" in second
    block = first.split(">", 1)[1].split("</pre>")[0]
    lines = strip_tags(block).splitlines()
    assert lines == [
        "07:08:09.123 INFO shop.tasks: &lt;b&gt;sent&lt;/b&gt;",
        "… 3 lines left out …",
        "07:08:09.123 INFO shop.tasks: the end",
    ]
    assert (text.count('2" open>'), text.count("<details id=")) == (1, 2)
    assert "5 lines" in text


def test_the_context_is_shown_if_there_is_one(root: Client) -> None:
    with_context = page(root, JobFactory.create(context={"language": "de"}).pk)
    assert "{&quot;language&quot;: &quot;de&quot;}" in with_context
    plain = page(root, JobFactory.create().pk)
    assert "field-carried" not in plain
    assert "pgqueue-logs" not in plain


def test_they_need_the_permission_to_see_jobs() -> None:
    address = url("change", JobFactory.create(done=True, logs=LOGS, context={"user": 5}).pk)
    assert staff().get(address).status_code == 403
    assert "pgqueue-logs" in body(staff("view_job"), address)
