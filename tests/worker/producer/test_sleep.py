"""The producer sleeps while its threads have enough to do: its turns cost them time."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgqueue import enqueue_many
from tests.app import worker_tasks as tasks
from tests.support.workers import make_producer

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_turn_ends_in_a_sleep_while_jobs_wait_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue_many(tasks.nap.bind(0.002) for _ in range(300))
    producer = make_producer(burst=True, threads=2)
    turns, sleeps = 0, 0
    turn, sleep = producer._turn, producer._waker.sleep

    def count_turns() -> None:
        nonlocal turns
        turns += 1
        turn()

    def count_sleeps(*arguments: Any) -> None:
        nonlocal sleeps
        sleeps += 1
        sleep(*arguments)

    monkeypatch.setattr(producer, "_turn", count_turns)
    monkeypatch.setattr(producer._waker, "sleep", count_sleeps)
    producer.run()
    producer._waker.close()
    # A turn that is followed at once by another one claims more jobs, and it claims many of them.
    assert turns - sleeps < 100, (turns, sleeps)
