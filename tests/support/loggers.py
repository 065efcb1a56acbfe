"""Loggers are shared by all tests of a process, so a test leaves them as it found them."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

State = tuple[int, bool, bool, list[logging.Handler]]


class LoggersKept:
    """A plugin that fails the test that leaves a logger changed, instead of one that comes after it."""

    def __init__(self) -> None:
        self._before: dict[logging.Logger, State] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        """Remember all loggers, before any fixture is set up."""
        self._before = _states()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        """Look at all loggers, after all fixtures of the test are torn down."""
        result = yield
        changed = _restore(self._before)
        assert not changed, f"the test leaves these loggers changed: {', '.join(changed)}"
        return result


@contextmanager
def loggers_restored() -> Iterator[None]:
    """Undo what the block does to the loggers that exist."""
    before = _states()
    try:
        yield
    finally:
        _restore(before)


def _states() -> dict[logging.Logger, State]:
    loggers = [*logging.root.manager.loggerDict.values()]
    return {logger: _state(logger) for logger in loggers if isinstance(logger, logging.Logger)}


def _state(logger: logging.Logger) -> State:
    # pytest adds handlers of its own while a test runs.
    handlers = [each for each in logger.handlers if not type(each).__module__.startswith("_pytest.")]
    return logger.level, logger.propagate, logger.disabled, handlers


def _restore(before: dict[logging.Logger, State]) -> list[str]:
    changed = [
        logger
        for logger, state in before.items()
        if (now := _state(logger)) != state and _shown(now) != _shown(state)
    ]
    for logger in changed:
        logger.level, logger.propagate, logger.disabled, logger.handlers = before[logger]
    if changed:
        logging.root.manager._clear_cache()  # type: ignore[attr-defined]
    return [logger.name for logger in changed]


def _shown(state: State) -> tuple[Any, ...]:
    # Programs that call django.setup() again make new handlers from the same settings.
    return (*state[:3], [type(handler) for handler in state[3]])
