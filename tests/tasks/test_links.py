"""``task.using(after=..., if_failed=..., batch=...)``: what is accepted, and what is refused at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue import Batch, Unique, enqueue, enqueue_many
from django_pgqueue.compat import InvalidTask, TaskResult
from django_pgqueue.jobs.results import task_result
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.tasks.links import Link, Links
from tests.app.worker_tasks import add
from tests.support.wording import refusals

FOREIGN = {"BACKEND": f"{TaskResult.__module__.removesuffix('.base')}.backends.dummy.DummyBackend"}
TASK: Any = add


def row(pk: int, alias: str = "default", cls: Any = Job) -> Any:
    return cls.from_db(alias, ["id"], [pk])


def result(pk: int, alias: str) -> Any:
    job = Job(id=pk, status="pending", args=[], kwargs={}, errors=[], attempts=0)
    job._state.db = alias
    return task_result(job, add, "default")


def opened(pk: int, alias: str = "default") -> Batch:
    return Batch.of(pk, alias)


@pytest.mark.parametrize(("given", "links"), [
    (5, [Link(None, 5)]),
    (row(5), [Link("default", 5)]),
    (row(5, "other"), [Link("other", 5)]),
    (result(5, "default"), [Link("default", 5)]),
    (result(5, "other"), [Link("other", 5)]),
    (opened(7), [Link("default", 7)]),
    (row(7, cls=JobBatch), [Link("default", 7)]),
    ([5, 6, 5], [Link(None, 5), Link(None, 6)]),
    ({6}, [Link(None, 6)]),
    ((n for n in (2, 1)), [Link(None, 2), Link(None, 1)]),
])  # fmt: skip
def test_what_a_call_may_wait_for(given: Any, links: list[Link]) -> None:
    assert add.using(after=given).links == Links(after=tuple(links))


def test_variants_keep_their_links_and_replace_them() -> None:
    first = add.using(after=5, batch=opened(7))
    assert first.links == Links((Link(None, 5),), "hold", Link("default", 7))
    assert first.using(priority=3).links == first.links
    assert first.using(if_failed="run").links == Links((Link(None, 5),), "run", Link("default", 7))
    assert first.using(after=6).links == Links((Link(None, 6),), "hold", Link("default", 7))
    assert first.using(after=[]).links == Links(batch=Link("default", 7))
    assert add.using(after=[], if_failed="cancel") == add.using(if_failed="cancel", after=[])
    assert add.using(after=5).using(after=[]) == add
    assert add.links is None
    assert len({add, *(add.using(after=[5, row(6)], if_failed="run", batch=7) for _ in range(2))}) == 2


REPLACE, EARLIEST = Unique(on_conflict="replace"), Unique(on_conflict="earliest")
BAD: list[dict[str, Any]] = [
    {"after": "5"}, {"after": add}, {"after": [add.bind(1, 2)]}, {"after": 5.0}, {"after": {5: 6}},
    {"after": [None]}, {"after": True}, {"after": 0}, {"after": 2**63}, {"after": Job()},
    {"after": Batch("import")}, {"after": range(1, 102)}, {"after": 5, "if_failed": "stop"},
    {"if_failed": "run"}, {"batch": "import"}, {"batch": Job(id=5)}, {"batch": -1}, {"batch": Batch()},
    {"batch": 7, "after": opened(7)}, {"after": 5, "unique": REPLACE},
    {"batch": 5, "unique": EARLIEST, "unique_key": "k"},
]  # fmt: skip


def test_what_it_may_not(wording: Any) -> None:
    assert refusals(InvalidTask, *(partial(TASK.using, **options) for options in BAD)) == wording


def test_a_result_of_another_backend() -> None:
    strange = result(5, "default")
    object.__setattr__(strange, "id", "abc")
    with pytest.raises(InvalidTask, match=r"the result 'abc' of the backend 'default', which is not one of"):
        add.using(after=strange)


@override_settings(TASKS={"default": FOREIGN, "ours": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}})
def test_another_backend_does_not_know_them() -> None:
    with pytest.raises(InvalidTask, match=r"has after= or batch=, which the backend 'default'"):
        add.using(backend="default", after=5).enqueue(1, 2)


@pytest.mark.parametrize(("variant", "message"), [
    (add.using(after=row(5, "other")), r"after has the job or batch 5 in the database 'other', but"),
    (add.using(batch=opened(7, "other")), r"The batch 7 is in the database 'other', but"),
    (add.using(after=row(5), database="other"), r"after has the job or batch 5 in the database 'def"),
    (add.using(after=Job(id=5)), r"after has the job or batch 5 in memory: dummy_jobs\(\) or"),
])  # fmt: skip
def test_what_is_elsewhere_is_refused_before_any_query(variant: Any, message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        enqueue(variant, 1, 2)
    with pytest.raises(InvalidTask, match=f"item 0: {message}"):
        enqueue_many([variant.bind(1, 2)])


def test_a_batch_that_is_not_open() -> None:
    batch = Batch("import")
    with pytest.raises(
        ValueError, match=r"has no id\. It was never opened, or .* Write: with Batch\(\.\.\.\) as batch"
    ):
        batch.close()
    assert repr(opened(7)) == "<Batch 7>"
    with pytest.raises(ValueError, match="at most 200 characters"):
        Batch("x" * 201)
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"Batch\(name\) takes a string, not int"):
        Batch(wrong)
