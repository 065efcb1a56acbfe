"""Where the log goes: what a terminal shows at each verbosity, and that the project's own logging wins."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from django_pgqueue.formatting import MOST_BYTES
from django_pgqueue.worker.logs import _Formatter, configure_logging, logging_restored


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, logging.Manager], logging.Manager]:
    """Call `configure_logging` among loggers that nobody else, pytest included, has touched."""

    def configure(verbosity: int, manager: logging.Manager) -> logging.Manager:
        with monkeypatch.context() as patch:
            patch.setattr(logging, "getLogger", manager.getLogger)
            configure_logging(verbosity)
        return manager

    return configure


def fresh_manager() -> logging.Manager:
    root = logging.RootLogger(logging.WARNING)
    manager = logging.Manager(root)
    root.manager = manager
    return manager


@pytest.mark.parametrize(
    ("verbosity", "package", "jobs"),
    [
        (0, logging.WARNING, logging.ERROR),
        (1, logging.INFO, logging.WARNING),
        (2, logging.INFO, logging.INFO),
        (3, logging.DEBUG, logging.DEBUG),
    ],
)
def test_verbosity(verbosity: int, package: int, jobs: int, configured: Any) -> None:
    manager = configured(verbosity, fresh_manager())
    logger = manager.getLogger("django_pgqueue")
    assert (logger.level, manager.getLogger("django_pgqueue.job").level) == (package, jobs)
    assert len(logger.handlers) == 1


def test_exceptions_look_as_usual(configured: Any) -> None:
    (handler,) = configured(1, fresh_manager()).getLogger("django_pgqueue").handlers
    usual = logging.Formatter()
    try:
        try:
            int("x\n\n")
        except ValueError as first:
            raise KeyError("with a cause") from first
    except KeyError:
        error = sys.exc_info()
    for _ in range(2):
        assert handler.formatter.formatException(error) == usual.formatException(error)
    nothing = (None, None, None)
    assert handler.formatter.formatException(nothing) == usual.formatException(nothing)


def test_a_project_that_has_configured_logging_is_left_alone(configured: Any) -> None:
    manager = fresh_manager()
    manager.root.addHandler(logging.NullHandler())
    configured(3, manager)
    logger = manager.getLogger("django_pgqueue")
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)


def test_what_was_configured_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the command ends."""
    manager = fresh_manager()
    loggers = [manager.getLogger(name) for name in ("django_pgqueue", "django_pgqueue.job")]
    loggers[1].setLevel(logging.CRITICAL)
    with monkeypatch.context() as patch:
        patch.setattr(logging, "getLogger", manager.getLogger)
        with pytest.raises(SystemExit), logging_restored():
            _configure_and_exit()
    assert [(logger.level, logger.handlers) for logger in loggers] == [
        (logging.NOTSET, []),
        (logging.CRITICAL, []),
    ]


def _configure_and_exit() -> None:
    configure_logging(2)
    assert [logging.getLogger(name).level for name in ("django_pgqueue", "django_pgqueue.job")] == [20, 20]
    raise SystemExit


@pytest.mark.parametrize("message", ["x" * 10_000_000, "\ud800" * 100_000])
def test_a_huge_exception_is_cut_in_the_log(message: str) -> None:
    error = ValueError(message)
    text = _Formatter().formatException((ValueError, error, None))
    assert len(text.encode(errors="surrogatepass")) < MOST_BYTES + 100
    assert text.startswith("ValueError: ")
    assert "bytes left out" in text
