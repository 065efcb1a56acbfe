"""``@step``: a function that is a step of whichever job calls it."""

from __future__ import annotations

from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from ..exceptions import StepError
from ..step_rules import step_name
from .current import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StepFunction", "step"]

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
        return self._run(self.name, *args, **kwargs)

    def named(self, name: str, /) -> Callable[P, R]:
        """Return this step with another name: a job runs each name once."""
        step_name("named(name)", name)

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return self._run(name, *args, **kwargs)

        return run

    def _run(self, name: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        function: Any = self.__wrapped__
        running = RUNNING.get(None)
        result: R
        if running is None:
            result = function(*args, **kwargs)
        elif iscoroutinefunction(function):
            result = running.steps.arun(name, function, args, kwargs)  # type: ignore[assignment]  # its coroutine
        elif self.atomic:
            result = running.steps.run_atomic(name, function, args, kwargs)
        else:
            result = running.steps.run(name, function, args, kwargs)
        return result


class _StepMaker(Protocol):
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(*, name: str | None = None, atomic: bool = False) -> _StepMaker: ...
def step(function: Any = None, /, *, name: str | None = None, atomic: bool = False) -> Any:
    """Make a function a step: a job that calls it runs it once, as with ``current_job().step(...)``.

    ``name``: the name of the step in the job; by default that of the function. ``atomic``: run the function
    and record its result in one transaction, as ``current_job().atomic_step`` does. A job that calls it more
    than once names each call: ``charge.named("second")(5)``.

    Raise ``StepError`` for an async function with ``atomic``, and for what is not a function.
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
