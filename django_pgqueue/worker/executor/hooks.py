"""Run the body of a task within the hooks of ``AROUND_ATTEMPT``. The first hook is the outermost one.

An exception of the body passes all hooks, whatever their exits return: a job whose failure a hook has hidden
would count as done. A hook may raise another one instead, which then counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...tasks.hooks import around_attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...tasks.hooks import Hook
    from .running_job import RunningJob

T = TypeVar("T")


def call_within(running: RunningJob, body: Callable[[RunningJob], T]) -> T:
    """Call ``body``, on this thread, within the hooks of a sync task."""
    hooks = around_attempt()
    return _call_within(hooks, running, body) if hooks else body(running)


def _call_within(hooks: tuple[Hook, ...], running: RunningJob, body: Callable[[RunningJob], T]) -> T:
    if not hooks:
        return body(running)
    manager = hooks[0].call(running.job)
    enter, leave = _sync(hooks[0], manager, running)
    enter(manager)
    try:
        value = _call_within(hooks[1:], running, body)
    except BaseException as error:
        leave(manager, type(error), error, error.__traceback__)
        raise
    leave(manager, None, None, None)
    return value


async def await_within(hook: Hook, running: RunningJob, body: Callable[[], Awaitable[T]]) -> T:
    """Await ``body`` within one hook of an async task, in its own asyncio task."""
    manager = hook.call(running.job)
    kind = type(manager)
    is_async = hasattr(kind, "__aenter__")
    enter, leave = (kind.__aenter__, kind.__aexit__) if is_async else _sync(hook, manager, running)

    async def call(function: Callable[..., Any], *error: Any) -> None:
        answer = function(manager, *error)
        if is_async:
            await answer

    await call(enter)
    try:
        value = await body()
    except BaseException as error:
        await call(leave, type(error), error, error.__traceback__)
        raise
    await call(leave, None, None, None)
    return value


def _sync(hook: Hook, manager: Any, running: RunningJob) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return how to enter and leave a context manager. Like ``with``, look at its class."""
    kind = type(manager)
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
        return kind.__enter__, kind.__exit__
    if hasattr(kind, "__aenter__"):
        raise TypeError(
            f"AROUND_ATTEMPT: {hook.path} has returned an async context manager, but "
            f"{running.task.module_path} is a sync task. Return one that has __enter__ and __exit__ as well."
        )
    raise TypeError(
        f"AROUND_ATTEMPT: {hook.path} has returned {manager!r:.100}, not a context manager. Decorate it with "
        "contextlib.contextmanager, and return contextlib.nullcontext() for jobs that do not need it."
    )
