"""Weights of queues and aging, from the options of a worker to the order in which jobs run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import enqueue_many
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer
from tests.app import worker_tasks as tasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session() -> Iterator[Session]:
    with closing(connect("default")) as session:
        yield session


def backdate(queue: str, seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job_live SET run_after = %s WHERE queue_name = %s",
            [timezone.now() - timedelta(seconds=seconds), queue],
        )


def claimer(session: Session, **options: Any) -> Claimer:
    found = Claimer(WorkerOptions(**options), worker=1)
    assert found.search(session)[0]
    return found


def test_queues_are_served_as_often_as_their_weights_say(session: Session) -> None:
    queues = ("critical", "default", "low")
    for queue in queues:
        enqueue_many(tasks.noop.using(queue_name=queue).bind() for _ in range(100))
    found = claimer(session, queues=queues, weights={"critical": 6, "default": 3})
    served = Counter(row.queue_name for _ in range(20) for row in found.claim(session, 1))
    assert served == {"critical": 12, "default": 6, "low": 2}


@pytest.mark.promise("aging")
def test_a_job_that_has_waited_long_comes_before_newer_ones_of_the_next_priority(
    session: Session, settings: Any
) -> None:
    settings.PGQUEUE = {"AGING": timedelta(minutes=1)}
    enqueue_many(tasks.noop.using(queue_name="default").bind() for _ in range(10))
    enqueue_many(tasks.noop.using(queue_name="low", priority=-2).bind() for _ in range(2))
    backdate("low", 110)
    found = claimer(session)
    assert [row.queue_name for row in found.claim(session, 2)] == ["default"] * 2
    backdate("low", 190)
    found = claimer(session)
    assert Counter(row.queue_name for row in found.claim(session, 3)) == {"low": 2, "default": 1}
    assert [row.queue_name for row in found.claim(session, 2)] == ["default"] * 2


def test_a_range_that_was_empty_has_not_aged(session: Session, settings: Any) -> None:
    settings.PGQUEUE = {"AGING": timedelta(minutes=1)}
    enqueue_many(tasks.noop.using(queue_name="low", priority=-2).bind() for _ in range(2))
    backdate("low", 600)
    found = claimer(session)
    assert len(found.claim(session, 10)) == 2
    enqueue_many(tasks.noop.using(queue_name="low", priority=-2).bind() for _ in range(2))
    enqueue_many(tasks.noop.using(queue_name="default").bind() for _ in range(2))
    found.search(session)
    assert [row.queue_name for row in found.claim(session, 2)] == ["default"] * 2
