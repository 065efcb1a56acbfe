"""``@step``: a function that is a step of whichever job calls it."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from django.db import IntegrityError

from .. import conf
from ..compat import TaskResult, for_async
from ..encoding import encode_result
from ..exceptions import InvalidJSON, JobFinished, StepError
from ..models import Job
from ..models.changes import locate
from ..postgres import fetch_value
from .current import RUNNING

P = ParamSpec("P")
R = TypeVar("R")


class StepFunction(Generic[P, R]):
    """A function that runs once in each job that calls it. Made by ``@step``."""

    def __init__(self, function: Callable[P, R], name: str, *, atomic: bool) -> None:
        self.name = name
        self.atomic = atomic
        update_wrapper(self, function)
        self.__wrapped__ = function

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step. Where no job is running, call the function."""
        function: Any = self.__wrapped__
        running = RUNNING.get(None)
        if running is None:
            return self.__wrapped__(*args, **kwargs)
        steps: Any = running.steps
        run = steps.arun if iscoroutinefunction(function) else steps.run_atomic if self.atomic else steps.run
        result: R = run(self.name, function, args, kwargs)
        return result

    def named(self, name: str, /) -> StepFunction[P, R]:
        """Return this step with another name: a job runs each name once."""
        return StepFunction(self.__wrapped__, step_name("named(name)", name), atomic=self.atomic)


class _StepMaker(Protocol):
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(*, name: str | None = None, atomic: bool = False) -> _StepMaker: ...


def step(function: Any = None, /, *, name: str | None = None, atomic: bool = False) -> Any:
    """Make a function a step. A job that calls it runs it once, as with ``current_job().step(...)``.

    ``name``: the name of the step in the job; by default that of the function. ``atomic``: run the function
    and record its result in one transaction, as ``current_job().atomic_step`` does. A job that calls it more
    than once names each call: ``charge.named("second")(5)``.

    Raise ``StepError`` for an async function with ``atomic``, and for an object that is not a function.
    """

    def make(function: Any) -> StepFunction[Any, Any]:
        if not callable(function) or not hasattr(function, "__name__"):
            raise StepError(f"@step takes a function, not {function!r}.")
        if atomic and iscoroutinefunction(function):
            raise StepError(
                f"@step(atomic=True) cannot be used for the coroutine function {function.__name__}: Django "
                "has no async transactions."
            )
        chosen = step_name("@step(name=...)", function.__name__ if name is None else name)
        return StepFunction(function, chosen, atomic=atomic)

    return make if function is None else make(function)


HAS_STEPS = 1  # the bit of ``Job.marks`` that says so
MOST_STEPS = 1000  # how many steps, sleeps and events a job may have
_LONGEST = 100


def step_name(where: str, name: Any) -> str:
    """Return ``name``. Raise TypeError or ValueError unless it is a text of 1 to 100 characters."""
    if not isinstance(name, str):
        raise TypeError(f"{where} takes a name as its first argument, not {name!r}.")
    if not 0 < len(name) <= _LONGEST or "\0" in name or not name.isprintable():
        raise ValueError(f"{where}: a name has 1 to {_LONGEST} printable characters, not {name!r}.")
    return str(name)


def step_result(name: str, value: Any) -> str | None:
    """Return the result of a step as JSON; None for None. Raise StepError if it cannot be recorded."""
    try:
        return encode_result(value, conf.current().max_json_bytes)
    except InvalidJSON as error:
        raise StepError(f"The result of the step {name!r} cannot be recorded: {error}") from error


def send_event(job: Job | int | str | TaskResult[Any, Any], name: str, value: Any = None, /) -> bool:
    """Send the event ``name`` to a job (a ``Job``, an id, a ``TaskResult``), with a ``value`` (JSON).

    The job may wait for it already, or later. The event is part of the transaction of its database. Return
    False if the job has an event with this name already, or has stopped waiting for it.

    Raise ``JobFinished`` if the job has finished or does not exist, ``InvalidJSON`` if the value cannot be
    stored as JSON, and ``TypeError`` or ``ValueError`` for a bad name.
    """
    alias, pk = locate(job)
    text = encode_result(value, conf.current().max_json_bytes, "value")
    step_name("send_event(job, name)", name)
    try:
        return bool(fetch_value(alias, "SELECT pgqueue_send_event(%s, %s, %s::jsonb)", pk, name, text))
    except IntegrityError as error:
        if getattr(error.__cause__, "sqlstate", None) != "23Q01":  # no such job
            raise
        raise JobFinished(
            f"Job {pk} cannot receive the event {name!r}: it has finished, or there is no such job."
        ) from error


asend_event = for_async(send_event)
