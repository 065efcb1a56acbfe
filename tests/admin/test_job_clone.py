"""A copy of a job: the page "Enqueue again"."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel, enqueue
from django_pgqueue.models import Job
from django_pgqueue.redaction import REDACTED
from tests.app import secret_tasks, unique_tasks
from tests.receipts.models import Order, Receipt
from tests.support.factories import JobFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db

SIGN_IN = secret_tasks.sign_in.module_path


def clone(client: Client, job: Job, **values: Any) -> Any:
    """Fill in the form as it is shown, with some other values."""
    form = client.get(url("clone", job.pk)).context["form"]
    given = {name: form[name].value() for name in form.fields}
    texts = {name: "" if value is None else str(value) for name, value in {**given, **values}.items()}
    return client.post(url("clone", job.pk), texts)


def test_a_copy_has_other_values_and_those_that_are_not_shown() -> None:
    client = staff("view_job", "view_arguments_job", "clone_job")
    job = JobFactory.create(
        task_path=SIGN_IN, args=["ann", "hunter2"], kwargs={"api_key": "k-1"}, failed=True, priority=3,
        queue_name="mail", metadata={"request": 7},
    )  # fmt: skip
    page = body(client, url("clone", job.pk))
    assert "hunter2" not in page
    assert "k-1" not in page
    soon = timezone.localtime() + timedelta(hours=1)
    response = clone(client, job, args=json.dumps(["bob", REDACTED]), run_after=f"{soon:%Y-%m-%dT%H:%M:%S}")
    made = Job.objects.exclude(pk=job.pk).get()
    assert response.url == url("change", made.pk)
    assert (made.args, made.kwargs) == (["bob", "hunter2"], {"api_key": "k-1"})
    assert (made.task_path, made.queue_name, made.priority) == (SIGN_IN, "mail", 3)
    assert (made.metadata, made.status, made.max_attempts) == ({"request": 7}, "pending", 1)
    assert abs(made.run_after - soon) < timedelta(seconds=2)
    assert {(entry.object_id, str(entry)) for entry in LogEntry.objects.all()} == {
        (str(job.pk), f"Changed “{job}” — Enqueued again as job {made.pk}."),
        (str(made.pk), f"Added “{made}”."),
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"args": '["ann"]'}, "missing a required argument: 'password'"),
        ({"args": "[", "kwargs": "{}"}, "Enter a valid JSON."),
        ({"args": '{"user": "ann"}'}, "Enter a JSON list."),
        ({"kwargs": "[]"}, "Enter a JSON object."),
        ({"kwargs": '{"more": 1}'}, "got an unexpected keyword argument 'more'"),
        ({"kwargs": '{"api_key": "a\\u0000b"}'}, "contains a NUL character"),
        ({"args": f'["ann", "x", "{REDACTED}"]'}, "Replace each “[redacted]” by a value"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"queue_name": "no queue!"}, "queue"),
        ({"task_path": "gone.tasks.x", "args": "[]"}, "no task 'gone.tasks.x'"),
    ],
)
def test_a_copy_is_checked_as_an_enqueue_is(root: Client, values: dict[str, str], words: str) -> None:
    job = JobFactory.create(task_path=values.pop("task_path", SIGN_IN), args=["ann", "hunter2"])
    response = clone(root, job, **values)
    assert response.status_code == 200
    [errors] = re.findall(r'<ul class="errorlist[^>]*>.*?</ul>', response.content.decode())[:1]
    assert words in html.unescape(errors)
    assert Job.objects.count() == 1
    assert LogEntry.objects.count() == 0


def test_a_copy_with_a_unique_key_that_is_taken_is_the_other_job(root: Client) -> None:
    job = enqueue(unique_tasks.index, 5)
    response = clone(root, job)
    assert (Job.objects.count(), response.url) == (1, url("change", job.pk))
    assert "has the unique key of this call" in body(root, response.url)
    once = enqueue(unique_tasks.once, "a")
    refused = html.unescape(clone(root, once).content.decode()).split("errorlist")[1]
    assert f"Job {once.pk} has the unique key" in refused


def test_a_copy_that_replaces_the_arguments_of_a_waiting_job_is_told_as_such(root: Client) -> None:
    over = enqueue(unique_tasks.render, 5, "old")
    cancel(over)
    waiting = enqueue(unique_tasks.render, 5, "new")
    response = clone(root, over, args='[5, "old"]')
    assert response.url == url("change", waiting.pk)
    assert f"job {waiting.pk}, which has the unique key" in body(root, response.url)
    assert Job.objects.get(pk=waiting.pk).args == [5, "old"]
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (str(waiting.pk), CHANGE)
    assert entry.get_change_message() == f"Got the values of a copy of job {over.pk}."


def test_a_payload_is_copied_by_adding_a_row(root: Client) -> None:
    row = Receipt.objects.create(order=Order.objects.create(), email="a@b.c")
    assert "/clone/" not in body(root, url("change", row.pk))
    assert root.get(url("clone", row.pk)).headers["Location"] == url("change", row.pk)
    assert root.get(url("clone", 0)).status_code == 302
