"""Where the log of a worker goes, if the project's LOGGING does not say."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["configure_logging", "logging_restored"]

_LOGGERS = ("django_pgqueue", "django_pgqueue.job")
_AT_VERBOSITY = {
    # verbosity: (the package, the lines of single jobs)
    0: (logging.WARNING, logging.ERROR),
    1: (logging.INFO, logging.WARNING),
    2: (logging.INFO, logging.INFO),
    3: (logging.DEBUG, logging.DEBUG),
}


def configure_logging(verbosity: int) -> None:
    """Write to standard error at the level of ``--verbosity``, unless handlers are configured."""
    logger = logging.getLogger("django_pgqueue")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s"))
    logger.addHandler(handler)
    package, jobs = _AT_VERBOSITY[verbosity]
    logger.setLevel(package)
    logging.getLogger("django_pgqueue.job").setLevel(jobs)


@contextmanager
def logging_restored() -> Iterator[None]:
    """Take back at the end what ``configure_logging`` has done: a program may go on after the command."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
