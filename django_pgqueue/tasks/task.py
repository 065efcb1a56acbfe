"""`Task`: Django's own Task with a policy; its variants, its calls, and finding a task by its path.

Declaring a task reads neither settings nor TASKS. Without ``backend=`` the backend is determined at first use
(`routing.resolve`), and values that depend on a backend are validated by ``.using(...)`` and at enqueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, cast
from weakref import WeakValueDictionary

from asgiref.sync import async_to_sync, sync_to_async
from django.apps import apps
from django.utils import timezone

from .. import conf
from ..compat import DjangoTask, GenericTask, InvalidTask, is_task
from . import keys, links, options, payload as payloads
from .keys import Concurrency, Key, RateLimit
from .links import BatchLike, Links
from .misuse import Habits, check_names
from .options import Backoff, OnLost, checked
from .paths import AT_SETUP, import_task
from .routing import IMPLICIT, is_ours, resolve
from .signatures import argument_names, check_call, show_options
from .unique import Unique, check_unique

if TYPE_CHECKING:
    from ..compat import BaseTaskBackend
    from ..jobs.results import QueueTaskResult
    from .links import After, IfFailed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Policy(NamedTuple):
    """What a row of a job stores of the policy of its task."""

    max_attempts: int
    timeout: int | None
    """Seconds."""
    on_lost: OnLost
    expires_after: float | None
    """Seconds."""


class UsingOptions(TypedDict, total=False):
    """The options of a call; see `Task.using`."""

    priority: int | None
    queue_name: str | None
    run_after: datetime | timedelta | None
    backend: str | None
    metadata: Mapping[str, Any] | None
    database: str | None
    relay: str | None
    limit_key: str | None
    group_key: str | None
    unique: Unique | bool | None
    unique_key: str | None
    after: After | None
    if_failed: IfFailed | None
    batch: BatchLike | int | None
    max_attempts: int | None
    timeout: int | timedelta | None
    expires_after: float | timedelta | None
    tenant: str | None


class AnyTask(Protocol[P, R_co]):
    """What `enqueue` takes: a task of this package, one made by Django's own decorator, or a call."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Declare the arguments and the result of the task."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Task(Habits, GenericTask[P, R]):
    """A function that workers run, its policy, and the options of a call.

    Tasks are immutable. ``@task`` makes them, and `using` makes a variant for one call.
    """

    if not TYPE_CHECKING:
        _kind = "a task"
        do_not_call_in_templates = True  # Django's templates call what is callable

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse the call, and name the two that may be meant."""
            name = self.func.__name__
            raise TypeError(
                f"{self.module_path} is a task, which cannot be called like a function. To let a worker run "
                f"it, write enqueue({name}, ...). To run it now, write {name}.call(...)."
            )

    # Declared again because Django 6.0 has no defaults for them.
    priority: int = 0
    queue_name: str = "default"
    backend: str = IMPLICIT
    run_after: datetime | None = None

    run_after_delta: timedelta | None = None
    """`run_after` given as a timedelta: counted from the enqueue, by the database's clock."""
    max_attempts: int | None = None
    """The number of attempts before the job fails; None: the setting MAX_ATTEMPTS."""
    timeout: int | None = None
    """How many whole seconds an attempt may run; None: the setting TIMEOUT."""
    backoff: Backoff | None = None
    """The wait before a retry (see `django_pgqueue.task`); None: as the queue or the settings define it."""
    retry_on: tuple[type[BaseException], ...] | None = None
    """The only exceptions that are retried; None: all are."""
    fail_on: tuple[type[BaseException], ...] | None = None
    """Exceptions that fail the job at once, even if `retry_on` includes them."""
    expires_after: timedelta | None = None
    """A job that has not started this long after it was enqueued, or after its `run_after`, is cancelled."""
    on_lost: OnLost = "rerun"
    """Whether a job whose worker died while running it runs again or fails."""
    atomic: bool = False
    """Whether the function and the finish of its job run in one transaction."""
    unique: Unique | None = None
    """Which calls are not enqueued again, and how long; None: every call is."""
    unique_key: str | None = None
    """The unique key of a call, instead of the one that `unique` computes."""
    database: str | None = None
    """The database alias to enqueue on; None: that of the backend, or the one that the router returns."""
    relay: str | None = None
    """The database alias that a call is handed over to, after the commit of the caller; None: it stays."""
    concurrency: Concurrency | None = None
    """How many of its jobs, or of the jobs of each of its keys, may run at once; None: any number."""
    limit_key: str | None = None
    """The value of the key of a call, instead of the one that `concurrency` or `rate_limit` computes."""
    rate_limit: RateLimit | None = None
    """How many of its jobs, or of the jobs of each of its keys, may start in a period; None: any number."""
    group: Key = None
    """Whose job a call is: the names of arguments, or a callable; None: it has no group."""
    group_key: str | None = None
    """The group of a call, instead of the one that `group` computes."""
    tenant: str | None = None
    """Whose job a call is, in place of the tenant of its caller; see `context.for_tenant`."""
    spread: Key | bool = None
    """Over the shards, by a key of the call or (True) at random; None: it is not spread."""
    links: Links | None = None
    """What a call waits for, and the batch that it belongs to; see `using`."""
    search: Sequence[str] = ()
    """The arguments that are indexed, so that its jobs are found by their values."""
    capture_logs: bool | str | None = None
    """Whether, or from which level, its logs are kept with its jobs; None: as CAPTURE_LOGS says."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """A JSON object that is stored with the job."""
    payload: type[Any] | None = None
    """The model whose rows are the calls; None: its calls have arguments."""

    def __post_init__(self) -> None:
        for name, value in _checked_values(self).items():
            object.__setattr__(self, name, value)
        _declared[id(self)] = self
        if not apps.ready:
            AT_SETUP.add(self.func.__module__)

    def get_backend(self) -> BaseTaskBackend:
        """Return the backend in TASKS for this task. Raise InvalidTaskBackend for an unknown alias."""
        return resolve(self.backend)

    def using(self, **options: Unpack[UsingOptions]) -> Self:
        """Return a variant of this task for a call; None leaves an option unchanged.

        `run_after` is a datetime (aware, unless USE_TZ is off), or a timedelta that is counted from the
        enqueue, so that a stored variant never becomes outdated. `metadata` is merged key by key.
        The values `unique_key`, `limit_key` and `group_key` take the place of computed ones.
        `tenant`: whose job it is. No other tenant's jobs share its unique and limit keys.

        `after`: jobs and batches (or their ids) that must finish before the job runs. If one of them has
        failed, the job waits for its retry ("hold"), is cancelled ("cancel") or runs ("run"), as `if_failed`
        says. `batch`: the batch that the job belongs to.

        `relay`: the alias of another database. The enqueue writes a job of the relay instead, in the caller's
        transaction, and a worker hands the call over to that database after the commit. The result of that
        job is the id of the job there. Raise InvalidTask for invalid values.
        """
        check_names("Task.using", options, UsingOptions.__annotations__)
        changes = {
            name: _OF_CALLS[name](self, value) if name in _OF_CALLS else checked(name, value)
            for name, value in options.items() if value is not None
        }  # fmt: skip
        if "run_after" in changes:
            changes["run_after"], changes["run_after_delta"] = changes["run_after"]
        if "metadata" in changes:
            changes["metadata"] = {**self.metadata, **changes["metadata"]}
        if "unique_key" in changes:  # a key needs a `unique`, that of the call or that of the task
            changes["unique"] = changes.get("unique", self.unique) or Unique()
        changes = links.changed_links(self, changes)
        variant = self.with_values(changes)
        # While apps load, this runs at import and must not read TASKS yet. The enqueue validates in any case.
        # The backend of a task that names none is ours, and restricts nothing but the queue.
        if apps.ready and ("queue_name" in changes or variant.backend != IMPLICIT):
            variant._validate_for_backend()
        return variant

    def policy(self) -> Policy:
        """Return what a row of a job stores: the task's value, else the setting's."""
        settings = conf.current()
        return Policy(
            max_attempts=self.max_attempts or settings.max_attempts,
            timeout=self.timeout or settings.timeout,
            on_lost=self.on_lost,
            expires_after=None if self.expires_after is None else self.expires_after.total_seconds(),
        )

    def with_values(self, changes: Mapping[str, Any], /) -> Self:
        """Return a variant with values of an existing job. Nothing is validated: they were valid when it was
        enqueued, with the settings of that time.
        """
        cls: Any = type(self)
        variant = object.__new__(cls)
        for name in cls.__dataclass_fields__:
            object.__setattr__(variant, name, changes[name] if name in changes else getattr(self, name))
        return variant  # type: ignore[no-any-return]

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> QueueTaskResult[P, R]:
        """Enqueue one call through Django's interface. See `django_pgqueue.enqueue` for ours.

        Raise the same exceptions as that function, such as TypeError for arguments that do not fit.
        """
        backend = self.get_backend()
        return backend.enqueue(self._for(backend), args, kwargs)  # type: ignore[arg-type,return-value]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> QueueTaskResult[P, R]:
        """Like `enqueue`, for async code."""
        backend = self.get_backend()
        return await backend.aenqueue(self._for(backend), args, kwargs)  # type: ignore[arg-type,return-value]

    if TYPE_CHECKING:

        def get_result(self, result_id: str) -> QueueTaskResult[P, R]:
            """Return the result with this id."""

        async def aget_result(self, result_id: str) -> QueueTaskResult[P, R]:
            """Like `get_result`, for async code."""

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundTask:
        """Return a call: this task with arguments. Raise TypeError if they do not fit."""
        check_call(self, args, kwargs)
        return BoundTask(self, args, kwargs)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function directly, from sync code."""
        if iscoroutinefunction(self.func):
            return cast("R", async_to_sync(self.func)(*args, **kwargs))
        return self.func(*args, **kwargs)

    async def acall(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function directly, from async code."""
        if iscoroutinefunction(self.func):
            return cast("R", await self.func(*args, **kwargs))
        return await sync_to_async(self.func)(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the differences from the task found there: functions cannot be pickled."""
        definition = find_task(self.module_path)
        return _restore, (self.module_path, differences(definition, self))

    def _for(self, backend: BaseTaskBackend) -> Self:
        """Return this task as `backend` understands it: other backends do not know `run_after_delta`."""
        if is_ours(backend):
            return self
        if self.links is not None:
            raise InvalidTask(
                f"{self.module_path} has after= or batch=, which the backend {self.backend!r} "
                f"({type(backend).__name__}) does not know. Use a backend of django_pgqueue."
            )
        if self.run_after_delta is None:
            return self
        return self.with_values({"run_after": timezone.now() + self.run_after_delta, "run_after_delta": None})

    def _validate_for_backend(self) -> None:
        """Validate what can be validated before the task's module is fully imported."""
        backend = self.get_backend()
        if is_ours(backend):
            backend.check_queue(self)
        else:
            backend.validate_task(self._for(backend))


show_options(Task.using, dict.fromkeys(UsingOptions.__annotations__), "self")


@dataclass(frozen=True, slots=True)
class BoundTask(Habits):
    """A call: a task with arguments. `Task.bind` makes it, and `enqueue` and `enqueue_many` take it."""

    task: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    if not TYPE_CHECKING:
        _kind = "a call"

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse it."""
            raise TypeError(
                f"This is a call of {self.task.module_path}. To let a worker run it, write enqueue(call)."
            )

    def using(self, **options: Unpack[UsingOptions]) -> BoundTask:
        """Return this call with other options, as in `Task.using`."""
        return BoundTask(self.task.using(**options), self.args, self.kwargs)

    def enqueue(self) -> QueueTaskResult[..., Any]:
        """Enqueue the call through Django's interface. See `Task.enqueue`."""
        return self.task.enqueue(*self.args, **self.kwargs)

    async def aenqueue(self) -> QueueTaskResult[..., Any]:
        """Like `enqueue`, for async code."""
        return await self.task.aenqueue(*self.args, **self.kwargs)

    def call(self) -> Any:
        """Run the function directly, from sync code."""
        return self.task.call(*self.args, **self.kwargs)

    async def acall(self) -> Any:
        """Run the function directly, from async code."""
        return await self.task.acall(*self.args, **self.kwargs)


_declared: WeakValueDictionary[int, Task[..., Any]] = WeakValueDictionary()


def declared_tasks() -> Iterator[Task[..., Any]]:
    """Iterate over all declared tasks of this package that still exist, for the system checks. The one that
    the admin uses for itself (``admin.bulk``) is not among them: it is no task of the project.
    """
    own = f"{__name__.partition('.')[0]}."
    return (task for task in list(_declared.values()) if not task.module_path.startswith(own))


def find_task(path: str) -> Task[..., Any]:
    """Return the task at `path`. Raise UnknownTask, with the failed import as its cause."""
    return adopt(import_task(path))


def adopt(other: DjangoTask[P, R]) -> Task[P, R]:
    """Return `other` as a Task of this package, with one attempt.

    Django keeps its plain Task when a task of another backend is moved to ours by ``.using(backend=...)``.
    """
    if isinstance(other, Task):
        return other
    if not is_task(other):
        raise InvalidTask(f"{other!r} is not a task. Decorate the function with @task.")
    names = ("func", "priority", "queue_name", "backend", "run_after", "takes_context")
    return Task(**{name: getattr(other, name) for name in names}, max_attempts=1)


def _restore(path: str, changes: dict[str, Any]) -> Task[..., Any]:
    """Unpickle a task."""
    found = find_task(path)
    return found.with_values(changes) if changes else found


def _checked_values(task: Any) -> dict[str, Any]:
    """Return the values of a task that is being declared. Raise InvalidTask for invalid ones."""
    values = {name: options.checked(name, getattr(task, name)) for name in options.CHECKED}
    options.check_function(task.func, takes_context=task.takes_context, atomic=task.atomic)
    run_after, delta = options.run_after(task.run_after)
    payload = payloads.checked(task)
    names = None  # that keys may name: of arguments of the function, or of columns of the payload
    if any(each is not None for each in (task.concurrency, task.rate_limit, task.group, task.spread)):
        names = argument_names(task) if payload is None else sorted(payloads.key_fields(payload))
    keys.check_form("group", task.group)
    if task.group == ():
        raise InvalidTask("group=() would put all jobs into one group. Leave it out for no group.")
    keys.check_key(task.group, "group", task.module_path, names)
    concurrency, rate_limit = keys.checked_limits(task, names)
    if task.spread is not None and payload is not None:
        raise InvalidTask("spread is for arguments. With a payload, the job is in the database of its row.")
    if task.spread is not True:
        keys.check_form("spread", task.spread)
        keys.check_key(task.spread, "spread", task.module_path, names)
    return {
        **values,
        "run_after": run_after,
        "run_after_delta": task.run_after_delta if delta is None else delta,
        "concurrency": concurrency,
        "rate_limit": rate_limit,
        "unique": check_unique(task, task.unique),
        "search": keys.checked_search(task),
        "payload": payload,
    }


_OF_CALLS: dict[str, Any] = {
    "run_after": lambda _, value: options.run_after(value),
    "limit_key": keys.checked_limit_key,
    "group_key": lambda _, value: keys.checked_text("group_key", value),
    "relay": lambda _, value: options.alias("relay", value),
    "tenant": lambda _, value: options.tenant("tenant", value),
    "unique": check_unique,
    "unique_key": lambda _, value: keys.checked_text("unique_key", value),
    "after": lambda _, value: links.after(value),
    "if_failed": lambda _, value: options.one_of("if_failed", value, "hold", "cancel", "run"),
    "batch": lambda _, value: links.batch(value),
}


def differences(one: Task[..., Any], other: Task[..., Any]) -> dict[str, Any]:
    """Return the values of `other` that `one` does not have."""
    names = (each.name for each in fields(other) if each.compare and each.name != "func")
    return {name: getattr(other, name) for name in names if getattr(other, name) != getattr(one, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoMadeTask(Task[P, R]):
    """A task made by Django's own ``@task`` on our backend, which follows Django's contract.

    It has one attempt and is validated against its backend when it is declared (Django's decorator has read
    TASKS by then). From Django 6.1 on, and in ``django-tasks``, the decorator passes the options that it does
    not know to this class, so a task may have a policy there as well. Django 6.0 refuses them.
    """

    max_attempts: int | None = 1

    def __new__(cls, **options: Any) -> Self:
        """Raise TypeError for an option that tasks do not have."""
        names = {each.name for each in fields(cls)}  # a subclass may have more
        of_calls = {"run_after_delta", "links", "limit_key", "group_key", "unique_key", "relay", "tenant"}
        check_names("task", options, names - of_calls)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        conf.check_installed()
        Task.__post_init__(self)  # a slotted dataclass has no zero-argument super() before Python 3.14
        self._validate_for_backend()
