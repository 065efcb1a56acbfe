"""The settings of queues."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from django_pgqueue.models import Queue
from tests.support.factories import QueueFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db


def test_settings_of_a_queue(root: Client) -> None:
    given = {
        "name": "mail",
        "keep_done": "90 00:00:00",
        "keep_failed": "",
        "backoff_base": "1",
        "backoff_ceiling": "",
    }
    assert root.post(url("add", model="queue"), given).status_code == 302
    queue = Queue.objects.get(pk="mail")
    assert (queue.keep_done, queue.keep_failed, queue.backoff_base) == (timedelta(days=90), None, 1)
    changed = {**given, "name": "renamed", "keep_failed": "0"}
    assert root.post(url("change", "mail", model="queue"), changed).status_code == 302
    assert Queue.objects.get().pk == "mail", "jobs bear the name: it stays"
    assert Queue.objects.get().keep_failed == timedelta(0)
    assert "mail" in body(root, url("changelist", model="queue"))
    assert root.post(url("delete", "mail", model="queue"), {"post": "yes"}).status_code == 302
    assert not Queue.objects.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b"}, "Letters, digits"),
        ({"name": "taken"}, "There is a queue of this name already."),
        ({"keep_done": "-1 00:00:00"}, "Zero or more."),
        ({"backoff_base": "9", "backoff_ceiling": "3"}, "The longest wait is not shorter than the first."),
        ({"backoff_base": "-1"}, "greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be(root: Client, given: dict[str, str], said: str) -> None:
    QueueFactory.create(name="taken")
    response = root.post(url("add", model="queue"), {"name": "mail", **given})
    assert response.status_code == 200
    assert said in response.content.decode()
    assert Queue.objects.count() == 1
