"""The log of a worker whose project does not configure it in LOGGING."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..formatting import MOST_BYTES, shorten

_LOGGERS = ("django_pgqueue", "django_pgqueue.job")
_AT_VERBOSITY = {
    # verbosity: (level of the package, level of the lines about single jobs)
    0: (logging.WARNING, logging.ERROR),
    1: (logging.INFO, logging.WARNING),
    2: (logging.INFO, logging.INFO),
    3: (logging.DEBUG, logging.DEBUG),
}


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


# Print exceptions as the standard library does, but several times faster. Most of the time goes to the carets
# below a line of source: to place them, the standard library parses the line again for each frame that it
# prints. Jobs fail at the same places again and again, so the text of each place is kept. If a file changes
# while the process runs, its old lines are still shown for known places; they are the code that runs.

MOST = 1_000  # places whose text is kept
_texts: dict[tuple[object, ...], str] = {}


def format_error(error: BaseException, frames: TracebackType | None) -> str:
    """Return what ``traceback.format_exception(type(error), error, frames)`` returns, as one text."""
    whole = traceback.TracebackException(type(error), error, frames, lookup_lines=False, compact=True)
    printed = [whole]
    for each in printed:  # grows meanwhile
        each.stack = _Frames(each.stack)
        others = each.__cause__, each.__context__, *(each.exceptions or ())
        printed += [other for other in others if other is not None]
    return "".join(whole.format())


class _Frames(traceback.StackSummary):
    """The frames of an exception."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **options: Any) -> str:
        """Return the text of a frame."""
        place = (
            frame_summary.filename, frame_summary.name, frame_summary.lineno, frame_summary.end_lineno,
            frame_summary.colno, frame_summary.end_colno, *options.items(),
        )  # fmt: skip
        text = _texts.get(place)
        if text is None:
            text = super().format_frame_summary(frame_summary, **options)
            # Code that was compiled from a string has such a name, and other code may have the same one.
            if not frame_summary.filename.startswith("<"):
                if len(_texts) >= MOST:
                    _texts.clear()
                _texts[place] = text
        return text
