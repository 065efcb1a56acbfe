"""``@task``: turn a function into a `Task` and keep the types of its arguments.

Declaring a task reads neither settings nor TASKS.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from ..conf import check_installed
from .keys import Concurrency, Key, RateLimit
from .misuse import check_names
from .options import Backoff, Duration, ExceptionTypes, LogLevel, OnLost
from .signatures import show_options
from .task import Task
from .unique import Unique

if TYPE_CHECKING:
    from ..jobs.current import JobContext
    from ..models.job import JobPayload

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="JobPayload")


class PayloadTaskOptions(TypedDict, total=False):
    """The options of ``@task``, of which a task with a payload takes all. `Task` has the defaults."""

    queue_name: str
    priority: int
    backend: str
    max_attempts: int | None
    timeout: int | timedelta | None
    backoff: Backoff | None
    retry_on: ExceptionTypes | None
    fail_on: ExceptionTypes | None
    expires_after: Duration | None
    on_lost: OnLost
    concurrency: Concurrency | int | None
    rate_limit: RateLimit | None
    group: Key
    atomic: bool
    capture_logs: bool | LogLevel | None
    database: str | None
    metadata: Mapping[str, Any] | None


class TaskOptions(PayloadTaskOptions, total=False):
    """The options of a task whose calls have arguments."""

    unique: Unique | bool | None
    search: Sequence[str]
    spread: Key | Literal[True]


_NAMES = (*TaskOptions.__annotations__, "takes_context", "payload")


# In each pair of overloads the async one comes first, because a coroutine function is a function, too.
class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class _ContextDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...


class _PayloadDecorator(Protocol[M]):
    @overload
    def __call__(self, function: Callable[[M], Coroutine[Any, Any, R]], /) -> Task[[M], R]: ...
    @overload
    def __call__(self, function: Callable[[M], R], /) -> Task[[M], R]: ...


class _PayloadContextDecorator(Protocol[M]):
    @overload
    def __call__(self, function: Callable[[JobContext, M], Coroutine[Any, Any, R]], /) -> Task[[M], R]: ...
    @overload
    def __call__(self, function: Callable[[JobContext, M], R], /) -> Task[[M], R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> _ContextDecorator: ...
@overload
def task(*, takes_context: Literal[False] = ..., **options: Unpack[TaskOptions]) -> _Decorator: ...
@overload
def task(
    *, payload: type[M], takes_context: Literal[True], **options: Unpack[PayloadTaskOptions]
) -> _PayloadContextDecorator[M]: ...
@overload
def task(
    *, payload: type[M], takes_context: Literal[False] = ..., **options: Unpack[PayloadTaskOptions]
) -> _PayloadDecorator[M]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a module-level function a task: ``@task``, or ``@task(queue_name="mail", max_attempts=5)``.

    Where and when: `queue_name`; `priority` (-100 to 100, higher first); `backend` (an alias in TASKS);
    `database` (an alias in DATABASES); `metadata` (a JSON object that is stored with the job).

    Policy (durations are seconds or timedeltas): `max_attempts`; `timeout`, in whole seconds; `backoff`: a
    duration, a sequence of durations whose last one is used for all further retries, or a callable
    ``(exc, result)`` that returns one, or None for no retry; `retry_on` and `fail_on`: exception classes;
    `expires_after`: cancel a job that could not start within this time; `on_lost`: "rerun" or "fail" a job
    whose worker died; `concurrency`: how many of its jobs may run at once, or a `Concurrency` with a key;
    `rate_limit`: how many may start in a period (see `RateLimit`); `group`: whose jobs take turns (the name
    of an argument, several, or a callable); `atomic`: run the function and the finish of its job in one
    transaction; `unique`: which calls are not enqueued again (see `Unique`); `capture_logs`: True, or a level
    such as "WARNING", to keep what its jobs log with them; `search`: the names of up to eight arguments that
    are indexed, so that jobs are found at once by their values; `spread`: True, or the name of an argument,
    several, or a callable: its jobs go to one of the SHARDS, at random or by this key.

    With `takes_context` the function receives a JobContext as its first argument, `context`. With `payload`,
    a model that inherits from `JobPayload`, the function takes an instance of it, and each row of its table
    is a job.

    Raise InvalidTask for a function that a worker could not find, and for invalid values, and
    ImproperlyConfigured if the app is not in INSTALLED_APPS.
    """

    check_installed()
    check_names("task", options, _NAMES)

    def declare(func: Any) -> Task[..., Any]:
        return Task(func=func, **options)

    return declare if function is None else declare(function)


_DEFAULTS = {each.name: None if each.default is MISSING else each.default for each in fields(Task)}
show_options(task, {name: _DEFAULTS[name] for name in _NAMES}, "function", None)
