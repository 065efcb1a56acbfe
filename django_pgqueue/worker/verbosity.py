"""Log lines on the terminal, for projects whose LOGGING says nothing about this package."""

from __future__ import annotations

import logging

__all__ = ["configure_logging"]

_LEVELS = {
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
    package, jobs = _LEVELS[verbosity]
    logger.setLevel(package)
    logging.getLogger("django_pgqueue.job").setLevel(jobs)
