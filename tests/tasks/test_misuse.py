"""A task that is used like one of another queue says what to write instead, and stays an ordinary object."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from django.template import Context, Engine

from tests.app.tasks import mail

TASK: Any = mail


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delay", "enqueue(mail, ...)"),
        ("apply_async", "enqueue(mail.using(...), ...)"),
        ("si", "enqueue_many(mail.bind(...) for ...)"),
        ("defer_async", "await aenqueue(mail, ...)"),
        ("apply", "mail.call(...)"),
        ("link_error", "enqueue(other.using(after=job), ...)"),
        ("chunks", "chain([mail.bind(...), ...]), or a Batch"),
        ("retry", "raise RetryLater(delay) in the task"),
    ],
)
def test_attributes_of_other_queues(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(TASK, name)
    assert str(caught.value) == f"The task tests.app.tasks.mail has no {name!r}. Write {ours}."
    assert not hasattr(TASK, name)


def test_other_attributes_and_calls() -> None:
    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'dealy'"):
        _ = TASK.dealy
    with pytest.raises(TypeError, match=r"write enqueue\(mail, \.\.\.\)\. To run it now, write mail\.call"):
        TASK.using(priority=3)(1)


def test_copies_and_templates() -> None:
    assert copy.deepcopy(mail.using(priority=3)).priority == 3
    assert pickle.loads(pickle.dumps(mail)) == mail  # noqa: S301
    assert Engine().from_string("{{ task.queue_name }}").render(Context({"task": mail})) == mail.queue_name
