from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

import django_pgqueue
from django_pgqueue import Task, Unique, compat, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks.paths import check_path
from django_pgqueue.tasks.routing import implicit_backend
from django_pgqueue.tasks.task import DjangoMadeTask, adopt, declared_tasks, find_task
from tests.app.limit_tasks import ship
from tests.app.worker_tasks import add
from tests.receipts.tasks import send as send_receipt
from tests.support.wording import refusals

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}


@task(queue_name="mail", priority=10, metadata={"team": "shop", "level": 1})
def send(order_id: int, *, note: str = "") -> str:
    return f"{order_id}{note}"


@task
async def sleepy(x: int) -> int:
    return x + 1


@task
def any_name(self: int, task: int, args: int, kwargs: int, cls: int, run_after: int) -> list[int]:
    return [self, task, args, kwargs, cls, run_after]


@task(takes_context=True)
def with_context(context: Any, x: int) -> int:
    return x


@task(backoff=lambda exc, result: 3.0)
def with_lambda() -> None: ...


@task
def plain(x: int) -> None: ...


def replaced(x: int) -> None: ...


def shadowed(x: int) -> None: ...


_of_the_first = shadowed
globals()["shadowed"] = plain


def generator(x: int) -> Iterator[int]:
    yield x


async def async_generator(x: int) -> AsyncIterator[int]:
    yield x


async def coroutine(x: int) -> None: ...


class Holder:
    def method(self, x: int) -> None: ...

    @staticmethod
    def static(x: int) -> None: ...


def nested() -> Callable[..., None]:
    def inner(x: int) -> None: ...

    return inner


def pickled(value: Any) -> Any:
    """Pickle `value`, and return the unpickled object."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def in_a_fresh_process(code: str, folder: Path = Path()) -> str:
    """Return what a program prints that can import what is in the folder, too."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], env={"PYTHONPATH": f".:{folder}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_public_name_is_that_of_its_object_and_of_no_module() -> None:
    """``tests/docs/test_pages.py`` says which names there are."""
    folder = Path(django_pgqueue.__file__).parent
    assert {path.stem for path in folder.iterdir()} & {*django_pgqueue.__all__} == set()
    for name in django_pgqueue.__all__:
        # The one of django-tasks has had another name.
        assert name in ("InvalidTask", getattr(django_pgqueue, name).__name__)
    with pytest.raises(AttributeError, match="no attribute 'enqueue_later'"):
        django_pgqueue.enqueue_later  # type: ignore[attr-defined]  # noqa: B018


def test_declaring_a_task_imports_no_model_and_reads_no_settings(tmp_path: Path) -> None:
    (tmp_path / "declares.py").write_text(
        "from datetime import timedelta\n"
        "from django_pgqueue import task\n"
        "@task(backend='pg', queue_name='any', expires_after=timedelta(1))\n"
        "def run(x): ...\n"
        "later = run.using(queue_name='slow', run_after=timedelta(1))\n"
    )
    code = """
import sys
import django_pgqueue
assert not [name for name in sys.modules if name.startswith('django.')]
import declares
from django.conf import settings
from django_pgqueue.compat import task_backends
assert not settings.configured
assert 'settings' not in vars(task_backends)
print(declares.later.queue_name)
"""
    assert in_a_fresh_process(code, tmp_path) == "slow"


@pytest.mark.parametrize("backend", ["backend.PgQueueBackend", "testing.ImmediateBackend"])
def test_tasks_are_declared_while_apps_load(tmp_path: Path, backend: str) -> None:
    """Django's own decorator looks up the backend, which must not need the models yet."""
    (tmp_path / "early.py").write_text(
        "from django_pgqueue import current_job, task\n"
        f"from {compat.DjangoTask.__module__.removesuffix('.base')} import task as django_task\n"
        "@task(queue_name='any')\n"
        "def ours(): ...\n"
        "@django_task(queue_name='mail')\n"
        "def theirs(): ...\n"
        "fast = ours.using(queue_name='fast')\n"
    )
    code = f"""
import sys
from django.conf import settings
settings.configure(TASKS={{"default": {{"BACKEND": "django_pgqueue.{backend}", "QUEUES": ["mail"]}}}})
import early
from django.apps import apps
assert not apps.apps_ready
assert "django_pgqueue.models" not in sys.modules
print(type(early.theirs).__name__, type(early.ours.get_backend()).__name__)
"""
    assert in_a_fresh_process(code, tmp_path) == f"DjangoMadeTask {backend.partition('.')[2]}"


def test_attributes() -> None:
    assert send.func.__name__ == "send"
    assert send.module_path == "tests.tasks.test_task.send"
    assert (send.queue_name, send.priority, send.metadata) == ("mail", 10, {"team": "shop", "level": 1})
    assert (send.max_attempts, send.timeout, send.backoff, send.retry_on, send.fail_on) == (None,) * 5
    assert (send.expires_after, send.on_lost, send.atomic, send.database) == (None, "rerun", False, None)
    assert (send.run_after, send.run_after_delta, send.takes_context) == (None, None, False)
    variant = send.using(priority=77)
    known = {id(each) for each in declared_tasks()}
    assert (id(send) in known, id(variant) in known) == (True, False)


def test_the_policy_is_normalised() -> None:
    made = task(backoff=[1, timedelta(minutes=1)], retry_on=OSError, fail_on=[ValueError], expires_after=90)(
        plain.func
    )
    assert (made.backoff, made.retry_on, made.fail_on) == ((1.0, 60.0), (OSError,), (ValueError,))
    assert made.expires_after == timedelta(seconds=90)
    assert isinstance(hash(made), int)
    assert task(timeout=timedelta(minutes=2))(plain.func).timeout == 120
    assert task(backoff=timedelta(seconds=5))(plain.func).backoff == 5.0
    assert task(unique=True)(plain.func).unique == Unique()
    assert task(unique=False)(plain.func).unique is None
    for option in ("tries", "run_after"):
        with pytest.raises(TypeError, match=option):
            task(**{option: 3})(plain.func)  # type: ignore[call-overload]


def test_a_task_is_frozen_hashable_and_can_be_weakly_referenced() -> None:
    with pytest.raises(FrozenInstanceError):
        send.priority = 3  # type: ignore[misc]
    assert len({send, send.using(priority=10), send.using(priority=11)}) == 2
    assert weakref.ref(send)() is send


def test_a_subclass_may_add_a_field() -> None:
    """A slotted dataclass has no zero-argument super() on Python 3.12 and 3.13."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Teamwork(Task[..., Any]):
        team: str = "shop"

        def __post_init__(self) -> None:
            Task.__post_init__(self)

    made: Any = Teamwork(func=send.func, team="mail")
    assert (made.using(priority=5).team, made.using(priority=5).priority) == ("mail", 5)


def test_call() -> None:
    assert send.call(1, note="x") == "1x"
    assert sleepy.call(1) == 2
    assert any_name.bind(self=1, task=2, args=3, kwargs=4, cls=5, run_after=6).call() == [1, 2, 3, 4, 5, 6]
    assert (async_to_sync(sleepy.acall)(1), async_to_sync(send.acall)(1)) == (2, "1")
    assert async_to_sync(any_name.acall)(1, 2, 3, 4, 5, run_after=6) == [1, 2, 3, 4, 5, 6]


def test_bind_refuses_a_call_that_the_function_does_not_take() -> None:
    words = r"^tests\.tasks\.test_task\.send\(\) missing a required argument: 'order_id'$"
    for variant in (send, send.using(priority=5)):
        with pytest.raises(TypeError, match=words):
            variant.bind(note="x")  # type: ignore[call-arg]
    assert with_context.bind(1).args == (1,)
    with pytest.raises(TypeError, match=r"with_context\(\): too many positional arguments"):
        with_context.bind(None, 1)  # type: ignore[call-arg, arg-type]


def long(x: int) -> None: ...


long.__qualname__ = "f" * 300
NO_FUNCTIONS: list[Any] = [
    lambda x: None, Holder.method, Holder.static, Holder().method, vars(Holder)["static"], nested(), len,
    print, functools.partial(replaced, 1), Holder, 5, "tests.tasks.test_task.plain", [], generator,
    async_generator, long,
]  # fmt: skip


def test_what_is_no_function_of_a_task_is_refused(wording: Any) -> None:
    for declare in (task(), task(queue_name="mail")):
        calls = (functools.partial(declare, function) for function in NO_FUNCTIONS)
        assert refusals(InvalidTask, *calls) == wording(name="with and without options")
    mistaken: Any = (task(takes_context=True), plain.func), (task(atomic=True), coroutine)
    assert refusals(InvalidTask, *(functools.partial(*each) for each in mistaken)) == wording
    with pytest.raises(InvalidTask, match="is of type Task, not an ordinary function"):
        task(send)  # type: ignore[call-overload]
    with pytest.raises(InvalidTask, match="Decorate the function"):
        adopt(replaced)  # type: ignore[arg-type]
    assert task(atomic=True)(plain.func).atomic


BAD: dict[str, list[Any]] = {
    "max_attempts": [0, -1, "5", True, 2.0, 2**31],
    "timeout": [0, 1.5, timedelta(seconds=0.5)],
    "backoff": [
        -1, [], (), [1, -1], [1, "2"], "12", float("nan"), float("inf"), True, timedelta(seconds=-5),
    ],
    "retry_on": [OSError(), int, ("OSError",), "OSError"],
    "fail_on": [[OSError, 5], 5],
    "expires_after": [timedelta(0), timedelta(-1), timedelta(days=40_000), "60"],
    "on_lost": ["explode", None, []],
    "atomic": ["yes"],
    "capture_logs": ["Info", 1],
    "takes_context": [1],
    "metadata": [[1], "late", {"when": datetime(2026, 1, 1, tzinfo=UTC)}, {1: 2}],
    "priority": [101, -101, 3.1, "high", None, float("nan")],
    "queue_name": ["", "a" * 101, "two words", "é", "mail\n", None, 5],
    "backend": [5, ""],
    "database": [5, ""],
}  # fmt: skip
AT_THE_LIMIT: dict[str, list[Any]] = {
    "max_attempts": [1], "timeout": [1], "backoff": [0, (1,)], "retry_on": [(), {OSError}],
    "fail_on": [KeyboardInterrupt], "expires_after": [timedelta(microseconds=1), 0.5], "on_lost": ["fail"],
    "capture_logs": [False], "priority": [-100, 100.0], "queue_name": ["A_b-c.9", "a" * 100],
    "metadata": [None],
}  # fmt: skip


def test_bad_options_are_refused_where_the_task_is_declared(wording: Any) -> None:
    def declare(option: str, value: Any) -> Task[..., Any]:
        declared: Task[..., Any] = task(**{option: value})(plain.func)
        return declared

    bad = [functools.partial(declare, option, value) for option, values in BAD.items() for value in values]
    assert refusals(InvalidTask, *bad) == wording
    for option, values in AT_THE_LIMIT.items():
        for value in values:
            assert isinstance(declare(option, value), Task)


def test_using_changes_only_what_it_names() -> None:
    variant = send.using(
        priority=-5, queue_name="slow", metadata={"level": 2, "why": "late"}, database="other"
    )
    assert (variant.priority, variant.queue_name, variant.database) == (-5, "slow", "other")
    assert variant.metadata == {"team": "shop", "level": 2, "why": "late"}
    assert send.metadata == {"team": "shop", "level": 1}
    assert variant.func is send.func
    assert type(variant) is Task


def test_using_with_none_changes_nothing() -> None:
    variant = send.using(
        priority=None, queue_name=None, run_after=None, backend=None, metadata=None, database=None
    )
    assert variant == send
    assert variant is not send
    assert send.using() == send


def test_using_takes_no_policy() -> None:
    for option in ("backoff", "retry_on", "on_lost", "atomic", "unknown", "func"):
        with pytest.raises(TypeError, match=option):
            send.using(**{option: 1})  # type: ignore[arg-type]


BAD_TIMES: list[Any] = [
    datetime(2030, 1, 1),  # noqa: DTZ001
    datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=12))), timedelta(seconds=-1),
    timedelta(days=40_000), timedelta.max, 5, "2030-01-01", datetime(2030, 1, 1, tzinfo=UTC).date(),
]  # fmt: skip
BAD_USING: list[dict[str, Any]] = [
    {"priority": 101}, {"queue_name": "two words"}, {"metadata": {"x": b""}}, {"metadata": 5},
    {"database": 5}, {"backend": 5}, {"max_attempts": 0}, {"timeout": 0.5}, {"expires_after": -1},
    *({"run_after": value} for value in BAD_TIMES),
]  # fmt: skip


def test_using_refuses_bad_values(wording: Any) -> None:
    assert refusals(InvalidTask, *(functools.partial(send.using, **given) for given in BAD_USING)) == wording


def test_a_delay_is_kept_as_such() -> None:
    variant = send.using(run_after=timedelta(minutes=5))
    assert (variant.run_after, variant.run_after_delta) == (None, timedelta(minutes=5))
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert (variant.using(run_after=at).run_after, variant.using(run_after=at).run_after_delta) == (at, None)
    again = variant.using(run_after=at).using(run_after=timedelta(1))
    assert (again.run_after, again.run_after_delta) == (None, timedelta(1))
    assert variant.using(priority=1).run_after_delta == timedelta(minutes=5)
    for good in (datetime(2000, 1, 1, tzinfo=UTC), timedelta(0), timedelta(days=36_525)):
        assert good in (send.using(run_after=good).run_after, send.using(run_after=good).run_after_delta)


@pytest.mark.parametrize("original", [
    send,
    sleepy,
    with_lambda,
    send.using(priority=3, run_after=timedelta(minutes=5), metadata={"a": 1}, database="other"),
    with_lambda.using(run_after=datetime(2030, 1, 1, tzinfo=UTC), queue_name="slow"),
    ship.using(limit_key="x", group_key="vip"),
    send_receipt.using(priority=1),
    add.using(after=[5, 6], if_failed="run", batch=7),
])  # fmt: skip
def test_pickle_and_copy(original: Task[..., Any]) -> None:
    assert pickled(original) == copy.copy(original) == copy.deepcopy(original) == original
    assert (pickled(original).payload, pickled(original).links) == (original.payload, original.links)


def test_a_task_is_pickled_by_its_path() -> None:
    assert pickled(send) is send
    with pytest.raises(UnknownTask):
        pickle.dumps(task(replaced))


def test_pickle_survives_changed_queues() -> None:
    with override_settings(TASKS={"default": {**OURS, "QUEUES": ["mail", "slow"]}}):
        stored = pickle.dumps(send.using(queue_name="slow"))
    with override_settings(TASKS={"default": {**OURS, "QUEUES": ["mail"]}}):
        assert pickle.loads(stored).queue_name == "slow"  # noqa: S301


@pytest.mark.parametrize(("function", "reason"), [
    (replaced, "leads to an object of type function, not to this task"),
    (_of_the_first, "leads to another task, not to this task"),
])  # fmt: skip
def test_a_path_that_does_not_lead_back(function: Callable[..., None], reason: str) -> None:
    unreachable = task(function)
    with pytest.raises(InvalidTask, match=reason):
        implicit_backend().validate_task(unreachable.using(priority=3))
    with pytest.raises(InvalidTask, match=f"{reason}.*write @task above def {unreachable.name}"):
        implicit_backend().validate_task(unreachable)


def test_a_task_of_main_is_refused() -> None:
    code = """
from django.conf import settings
settings.configure()
from django_pgqueue import task
from django_pgqueue.tasks.routing import implicit_backend
@task
def run(): ...
try:
    implicit_backend().validate_task(run)
except Exception as error:
    print(error)
"""
    assert "a worker cannot import __main__" in in_a_fresh_process(code)


def test_a_bad_verdict_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    late = task(replaced)
    with pytest.raises(InvalidTask):
        check_path(late.func)
    monkeypatch.setattr(sys.modules[__name__], "replaced", late)
    check_path(late.func)


@pytest.mark.parametrize(("path", "cause"), [
    ("tests.tasks.test_task.nonsense", ImportError), ("no_such_module.run", ModuleNotFoundError),
    ("nonsense", ImportError), ("", ImportError), ("tests.tasks.test_task.replaced", type(None)),
    ("tests.tasks.test_task.Holder", type(None)),
])  # fmt: skip
def test_find_task_says_why_not(path: str, cause: type) -> None:
    assert find_task("tests.tasks.test_task.send") is send
    with pytest.raises(UnknownTask) as caught:
        find_task(path)
    assert isinstance(caught.value.__cause__, cause)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "error"), [("1 / 0", ZeroDivisionError), ("raise SystemExit", SystemExit)]
)
def test_find_task_survives_a_module_that_raises(
    source: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    (tmp_path / "project_that_raises").mkdir()
    (tmp_path / "project_that_raises" / "tasks.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    settings.SETTINGS_MODULE = "project_that_raises.settings"
    with pytest.raises(UnknownTask, match=error.__name__) as caught:
        find_task("project_that_raises.tasks.run")
    assert isinstance(caught.value.__cause__, error)


def test_a_task_of_djangos_decorator_is_ours_with_one_attempt() -> None:
    django_task = sys.modules[compat.DjangoTask.__module__].task
    with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default", "mail"]}}):
        made = django_task(queue_name="mail", priority=3)(plain.func)
        assert isinstance(made, DjangoMadeTask)
        assert isinstance(made, Task)
        assert (made.max_attempts, made.queue_name, made.priority, made.backend) == (1, "mail", 3, "default")
        assert made.using(run_after=timedelta(1)).max_attempts == 1
        with pytest.raises(InvalidTask, match="Queue 'slow' is not valid for backend"):
            django_task(queue_name="slow")(plain.func)
        with pytest.raises(InvalidTask, match="Queue 'slow' is not valid for backend"):
            made.using(queue_name="slow")
        with pytest.raises(InvalidTask, match="whole number"):
            made.using(priority=101)


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="Django 6.0's decorator passes no options on")
def test_djangos_decorator_takes_our_policy_too() -> None:
    django_task = sys.modules[compat.DjangoTask.__module__].task
    with override_settings(TASKS={"default": OURS}):
        made = django_task(max_attempts=3, timeout=5, retry_on=OSError)(plain.func)
        assert (made.max_attempts, made.timeout, made.retry_on) == (3, 5, (OSError,))
        with pytest.raises(TypeError, match=r"argument 'max_attemps'\. Did you mean 'max_attempts'\?$"):
            django_task(max_attemps=3)(plain.func)
        with pytest.raises(TypeError, match=r"argument 'color'\. The options are atomic, backend, backoff"):
            django_task(color="red")(plain.func)
