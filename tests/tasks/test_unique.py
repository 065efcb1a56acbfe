"""The declaration of unique tasks, the keys of their calls, and what calls may be linked to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue import Batch, Unique, enqueue, enqueue_many, task
from django_pgqueue.compat import InvalidTask, TaskResult
from django_pgqueue.exceptions import InvalidKey, PgQueueError
from django_pgqueue.jobs.results import task_result
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.tasks.links import Link, Links
from django_pgqueue.tasks.task import Task
from django_pgqueue.tasks.unique import unique_key
from tests.app.worker_tasks import add
from tests.support.wording import refusals

#: Without types, for calls that type checkers refuse.
make_unique: Any = Unique
make_task: Any = task


def index(document_id: int, force: bool = False, *, language: str = "en") -> None: ...
def anything(*args: Any, **kwargs: Any) -> None: ...
def odd(a: int, /, b: int = 2, *more: int, **kwargs: Any) -> None: ...
def nothing() -> None: ...
def with_context(context: Any, document_id: int) -> None: ...
def since(document_id: int, when: date = date(2026, 1, 1)) -> None: ...
def wide(text: str) -> None: ...


def key(func: Callable[..., Any], *args: Any, by: Any = None, name: str | None = None, **kwargs: Any) -> str:
    unique = Unique(key=by, name=name)
    declared: Task[..., Any] = make_task(unique=unique, takes_context=func is with_context)(func)
    return unique_key(declared, args, kwargs).removeprefix("tests.tasks.test_unique.")


def test_the_key_of_a_call(wording: Any) -> None:
    keys = [
        key(index, 1), key(index, document_id=1), key(index, language="en", force=False, document_id=1),
        key(index, 1, by="document_id"), key(index, 1, language="fr", by=("language", "document_id")),
        key(index, 1, by=()), key(index, 1, by="document_id", name="documents"),
        key(index, 1, by=(), name="documents"), key(nothing, name="documents"),
        key(wide, {"a": [1]}, by="text"), key(wide, None, by="text"), key(anything, b=5, by=("b", "c")),
        key(nothing), key(anything, 1, b=2, a={"z": 1, "y": 2}), key(odd, 1, 5, 6, 7, a=9, c=8), key(odd, 1),
        key(with_context, 3), key(since, 3, by="document_id"),
        key(index, 7, by=lambda document_id, **_: document_id),
        key(index, 7, by=lambda document_id, **_: ["é", document_id]),
        key(since, 7, by=lambda document_id, **_: f"doc {document_id}"),
    ]  # fmt: skip
    assert "\n".join(keys) == wording


def test_a_key_that_would_be_too_long_ends_in_a_hash() -> None:
    fits = key(wide, "x" * (200 - len('tests.tasks.test_unique.wide(text="")')))
    assert "#" not in fits
    one, other = key(wide, "x" * 500 + "1"), key(wide, "x" * 500 + "2")
    assert one != other
    for long in (one, other):
        assert len("tests.tasks.test_unique." + long) == 200
        assert long.startswith('wide(text="xxx')
        assert long[-65] == "#"
    assert one == key(wide, "x" * 500 + "1")


def test_a_key_of_the_call_is_used_as_it_is() -> None:
    declared: Task[..., Any] = task(unique=Unique(key="document_id", scope="live"))(index)
    variant = declared.using(unique_key="doc-7")
    assert variant.unique is declared.unique is not None
    assert unique_key(variant, (1,), {}) == "doc-7"
    other = declared.using(unique_key="x", unique=Unique(window=86_400))
    assert (other.unique_key, other.unique) == ("x", Unique(window=timedelta(1)))
    plain: Task[..., Any] = task(index)
    assert plain.unique is None
    assert plain.using(unique_key="x").unique == Unique()
    assert plain.using(unique=Unique(key="document_id")).unique == Unique(key="document_id")
    assert declared.using(priority=3).unique is declared.unique


BAD: list[Callable[[], object]] = [
    lambda: make_unique(scope="always"), lambda: make_unique(on_conflict="ignore"),
    lambda: make_unique(window=timedelta(0)), lambda: make_unique(window=-1),
    lambda: make_unique(window="1h"), lambda: make_unique(window=timedelta(40_000)),
    lambda: make_unique(key=(1,)),
    lambda: make_unique(key=["a"]), lambda: make_unique(key=5), lambda: make_unique(key=("a", "a")),
    lambda: make_unique(name=""), lambda: make_unique(name=7), lambda: make_unique(name="a\0"),
    lambda: make_unique(name="\ud800"), lambda: make_unique(name="x" * 201),
    lambda: make_task(unique=5)(index), lambda: make_task(unique=Unique(key="id"))(index),
    lambda: make_task(unique=Unique(key="context"))(nothing),
    lambda: make_task(unique=Unique(key="context"), takes_context=True)(with_context),
    lambda: make_task(unique=Unique())(since), lambda: make_task(unique=Unique(key="when"))(since),
    lambda: make_task(index).using(unique=Unique(key="id")), lambda: make_task(index).using(unique="doc"),
    lambda: make_task(index).using(unique="pk"), lambda: make_task(index).using(unique=["pk"]),
    lambda: make_task(index).using(unique=len), lambda: make_task(index).using(unique_key=""),
    lambda: make_task(index).using(unique_key=7),
]  # fmt: skip
NO_KEYS: list[Callable[..., Any]] = [
    lambda document_id: document_id / 0, lambda document_id: None, lambda document_id: object(),
    lambda document_id: "\ud800",
]  # fmt: skip


def test_what_is_wrong_is_said_at_the_definition(wording: Any) -> None:
    assert refusals(InvalidTask, *BAD) == wording


def test_a_callable_that_gives_no_key_fails_the_enqueue(wording: Any) -> None:
    said = refusals(InvalidKey, *(partial(key, index, 1, by=by) for by in NO_KEYS))
    assert said == wording
    with pytest.raises(PgQueueError, match="index raised TypeError"):
        key(index, 1, by=lambda: 1)
    with pytest.raises(PgQueueError, match="cannot be written as JSON"):
        key(index, 1, by=lambda document_id: {1: float("nan")})


def test_a_long_default_is_shortened_in_the_message() -> None:
    def many(numbers: Any = set(range(1000))) -> None: ...  # noqa: B006

    many.__qualname__ = "many"
    with pytest.raises(InvalidTask, match="cannot be written as JSON") as caught:
        task(unique=Unique())(many)
    assert len(str(caught.value)) < 400


# --- task.using(after=..., if_failed=..., batch=...): what is accepted, and what is refused at once


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
BAD_LINKS: list[dict[str, Any]] = [
    {"after": "5"}, {"after": add}, {"after": [add.bind(1, 2)]}, {"after": 5.0}, {"after": {5: 6}},
    {"after": [None]}, {"after": True}, {"after": 0}, {"after": 2**63}, {"after": Job()},
    {"after": Batch("import")}, {"after": range(1, 102)}, {"after": 5, "if_failed": "stop"},
    {"if_failed": "run"}, {"batch": "import"}, {"batch": Job(id=5)}, {"batch": -1}, {"batch": Batch()},
    {"batch": 7, "after": opened(7)}, {"after": 5, "unique": REPLACE},
    {"batch": 5, "unique": EARLIEST, "unique_key": "k"},
]  # fmt: skip


def test_what_it_may_not(wording: Any) -> None:
    assert refusals(InvalidTask, *(partial(TASK.using, **options) for options in BAD_LINKS)) == wording


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
    with pytest.raises(ValueError, match=r"has no id\. It was never opened, or .* Write: with Batch\("):
        batch.close()
    assert repr(opened(7)) == "<Batch 7>"
    with pytest.raises(ValueError, match="at most 200 characters"):
        Batch("x" * 201)
