"""The steps of a job that exists only in memory: each is called, and nothing is recorded or waited for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..exceptions import StepError, WaitTimeout, duration
from ..step_rules import step_name, step_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

__all__ = ["FakeSteps"]


class FakeSteps:
    """The steps of a job of `call_task`. ``signals``: the values of those that it may wait for."""

    def __init__(self, signals: Mapping[str, Any]) -> None:
        self._signals = signals
        self._used: set[str] = set()

    def run(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function, and return what its record would return."""
        self._use("step", name)
        return _recorded(name, function(*args, **kwargs))

    def run_atomic(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function, and return what its record would return."""
        self._use("atomic_step", name)
        return _recorded(name, function(*args, **kwargs))

    async def arun(self, name: str, function: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        """Await the function, and return what its record would return."""
        self._use("astep", name)
        return _recorded(name, await function(*args, **kwargs))

    def sleep(self, name: str, length: float | timedelta) -> None:
        """Go on at once."""
        duration("sleep(name, length)", length)
        self._use("sleep", name)

    def wait_for(self, name: str, timeout: float | timedelta | None) -> Any:
        """Return the value of the signal. Without one, the time is over."""
        if timeout is not None:
            duration("wait_for(name, timeout)", timeout)
        self._use("wait_for", name)
        if name in self._signals:
            return _recorded(name, self._signals[name])
        if timeout is not None:
            raise WaitTimeout(f"The signal {name!r} did not come in time.")
        raise StepError(
            f"wait_for({name!r}): there is no such signal, and the wait has no timeout. Pass its value: "
            f"fake_job(signals={{{name!r}: ...}})."
        )

    async def finish_records(self) -> None:
        """There are no records."""

    def _use(self, call: str, name: str) -> None:
        step_name(f"{call}(name, ...)", name)
        if name in self._used:
            raise StepError(f"{call}({name!r}): this attempt has used the name {name!r} before.")
        self._used.add(name)


def _recorded(name: str, value: Any) -> Any:
    """Return what JSON makes of the value."""
    text = step_result(name, value)
    return None if text is None else json.loads(text)
