"""Keep what a job logs: a bounded number of records, the first and the last ones, stored with its outcome.

One handler at the root logger serves all jobs. It finds the job of a record by the context in which the
record was emitted, and so in the task's threads and coroutines as well. The first such job of a process adds
it, and it stays.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from ... import conf
from ...conf import log_level
from ...formatting import storable
from ...jobs.current import RUNNING

_FORMATTER = logging.Formatter()
_OVERHEAD = 80  # bytes of a line in JSON besides its texts, about


class LogCapture:
    """The lines of one attempt. Half of the room is for the first lines, and half for the last ones."""

    def __init__(self, level: int, lines: int, size: int) -> None:
        self.level = level
        self._most = size // 4  # of one message, so that one of them does not displace all others
        self._lines = lines // 2
        self._size = size // 2
        self._first: list[dict[str, str]] = []
        self._first_size = 0
        self._last: deque[tuple[int, dict[str, str]]] = deque()
        self._last_size = 0
        self._left_out = 0
        # Race: a thread of the task logs while the lines are reported, or while another thread logs.
        self._lock = Lock()

    def add(self, record: logging.LogRecord) -> None:
        """Add a record. If there is no room, the oldest of the last lines is left out."""
        message = storable(_FORMATTER.format(record))  # with its traceback, but without a prefix
        if len(message) > self._most:
            message = message[: self._most - 1] + "…"
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": storable(record.name)[:200],
            "message": message,
        }
        size = _OVERHEAD + len(line["logger"]) + len(message.encode())
        with self._lock:
            is_first = not self._last and not self._left_out and len(self._first) < self._lines
            if is_first and self._first_size + size <= self._size:
                self._first.append(line)
                self._first_size += size
                return
            self._last.append((size, line))
            self._last_size += size
            while len(self._last) > self._lines or (self._last_size > self._size and len(self._last) > 1):
                self._last_size -= self._last.popleft()[0]
                self._left_out += 1

    def as_json(self, attempt: int) -> str | None:
        """Return the lines as they are stored; None if there are none."""
        with self._lock:
            if not self._first and not self._last:
                return None
            entry: dict[str, Any] = {"attempt": attempt, "lines": list(self._first)}
            if self._left_out:
                entry["left_out"] = self._left_out
                entry["after"] = len(self._first)
            entry["lines"] += [line for _, line in self._last]
            return json.dumps(entry, ensure_ascii=False)


def capture_of(wanted: bool | str | None, queue_name: str) -> LogCapture | None:
    """Return what keeps the logs of a job; None if they are not kept. ``wanted``: what its task says."""
    settings = conf.current()
    if wanted is None:
        levels = settings.capture_logs
        level = levels.get(queue_name, levels.get("*", 0)) if levels else 0
    else:
        level = log_level(wanted)
    if not level:
        return None
    logging.root.addHandler(_HANDLER)  # unless it is there: a task may have configured logging anew
    return LogCapture(level, settings.log_lines, settings.log_bytes)


class _Handler(logging.Handler):
    """Gives each record to the job that has emitted it."""

    def emit(self, record: logging.LogRecord) -> None:
        log: LogCapture | None = getattr(RUNNING.get(None), "log", None)
        if log is not None and record.levelno >= log.level:
            try:
                log.add(record)
            except Exception:  # the arguments of the record may not fit its message
                self.handleError(record)
        fallback = logging.lastResort
        if fallback is not None and record.levelno >= fallback.level and self._is_alone(record):
            fallback.handle(record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        """Return whether no other handler gets the record. Without this one, it would be printed."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


_HANDLER = _Handler()
