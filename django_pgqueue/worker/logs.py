"""The log of a worker whose project does not configure it in LOGGING."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .tracebacks import format_error, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["configure_logging", "logging_restored"]

_LOGGERS = ("django_pgqueue", "django_pgqueue.job")
_AT_VERBOSITY = {
    # verbosity: (level of the package, level of the lines about single jobs)
    0: (logging.WARNING, logging.ERROR),
    1: (logging.INFO, logging.WARNING),
    2: (logging.INFO, logging.INFO),
    3: (logging.DEBUG, logging.DEBUG),
}


MOST_BYTES = 64 * 2**10
"""Of an exception. The messages of exceptions may be of any size, and each attempt prints one."""


class _Formatter(logging.Formatter):
    """Prints exceptions faster, because a worker may print thousands of similar ones, and cuts long ones."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is that of logging
        _, error, frames = ei
        if error is None:
            return super().formatException(ei)
        return shorten(format_error(error, frames).removesuffix("\n"), MOST_BYTES)


def configure_logging(verbosity: int) -> None:
    """Log to standard error at the level for ``--verbosity``, unless handlers are configured."""
    logger = logging.getLogger("django_pgqueue")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s"))
    logger.addHandler(handler)
    package, jobs = _AT_VERBOSITY[verbosity]
    logger.setLevel(package)
    logging.getLogger("django_pgqueue.job").setLevel(jobs)


@contextmanager
def logging_restored() -> Iterator[None]:
    """Undo ``configure_logging`` at the end, for a program that continues after the command."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
