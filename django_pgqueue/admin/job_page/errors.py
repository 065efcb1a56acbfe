"""The errors of a job as they are shown on its page, the last one first, redacted."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.utils.dateparse import parse_datetime
from django.utils.html import format_html_join
from django.utils.translation import ngettext

from ...encoding import whole_number
from ...redaction import redact_text
from .. import display
from ..failures import application_part
from ..jobs import texts
from ..jobs.progress import progress_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ...models import Job


def shown_errors(job: Job, worker: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return what the template shows of each error. ``worker`` formats the id of a worker."""
    shown = [_shown_error(job, error, worker) for error in job.errors]
    for before, after in pairwise(shown):
        before["later"], after["earlier"] = after["attempt"], before["attempt"]
    return shown[::-1]


def worker_ids(job: Job) -> set[int]:
    """Return the ids of the workers of all attempts that are known."""
    keys = {job.worker, *map(_worker_id, job.errors)}
    return {key for key in keys if key is not None}


def _shown_error(job: Job, error: dict[str, Any], worker: Callable[[int], str]) -> dict[str, Any]:
    key = _worker_id(error)
    traceback = redact_text(str(error.get("traceback", "")), job.task_path)
    return {
        **error,
        "attempt": error.get("attempt", ""),
        "kind": texts.breakable(str(error.get("class", ""))),
        "message": redact_text(str(error.get("message", "")), job.task_path),
        "traceback": traceback,
        "frames": application_part(traceback),
        "came": progress_in_words(error.get("progress"), job.task_path),
        "started": _error_time(error, "started_at"),
        "ended": _error_time(error, "finished_at"),
        "by": "" if key is None else worker(key),
    }


def _error_time(error: dict[str, Any], key: str) -> str:
    """Format a time of an error, which is text in JSON; invalid text is returned unchanged."""
    text = str(error.get(key) or "")
    try:
        return display.time(parse_datetime(text))
    except ValueError:
        return text


def _worker_id(error: dict[str, Any]) -> int | None:
    """Return the id of the worker of an error, which is text in JSON; None if it is invalid."""
    try:
        key = int(error.get("worker") or "")
    except ValueError:
        return None
    return key if -(2**63) <= key < 2**63 else None


# ----------------------------------------------------------------------------
# The kept logs of a job as they are shown on its page: the lines of each attempt as one text.
#
# Of a long log, the last lines are shown, and a link leads to those before them. The address of the link
# names the attempt and the line after the last one that it shows (``?log=2:500``). Kept logs do not change,
# so these addresses stay right.

MOST_LINES = 500


def shown_logs(job: Job, place: str = "") -> list[dict[str, Any]]:
    """Return what the template shows of each attempt, the last one first. ``place``: that of a link."""
    attempt, _, line = place.partition(":")
    end = whole_number(line)
    return [
        _shown_attempt(job, entry, end if str(entry.get("attempt")) == attempt else None)
        for entry in reversed(job.logs or [])
    ]


def _shown_attempt(job: Job, entry: dict[str, Any], end: int | None) -> dict[str, Any]:
    """Return one attempt, up to a line."""
    # Redacted as a whole, because a pattern may be about several lines.
    lines = redact_text("\n".join(_lines(entry)), job.task_path).split("\n")
    count = len(lines)
    end = count if end is None else max(1, min(end, count))
    start = max(0, end - MOST_LINES)
    attempt = entry.get("attempt", "")
    return {
        "attempt": attempt,
        "count": _count(entry),
        "text": format_html_join("\n", "{}{}", list(_timed(lines, entry))[start:end]),
        "is_chosen": end < count,
        "before": f"{attempt}:{start}" if start else "",
        "after": f"{attempt}:{min(end + MOST_LINES, count)}" if end < count else "",
    }


def _count(entry: dict[str, Any]) -> str:
    count = len(entry.get("lines", [])) + entry.get("left_out", 0)
    return ngettext("%(count)d line", "%(count)d lines", count) % {"count": count}


def _lines(entry: dict[str, Any]) -> list[str]:
    lines = [_line(line) for line in entry.get("lines", [])]
    left_out = entry.get("left_out", 0)
    if left_out:
        words = ngettext("… %(count)d line left out …", "… %(count)d lines left out …", left_out)
        lines.insert(entry.get("after", 0), words % {"count": left_out})
    return lines


def _line(line: dict[str, Any]) -> str:
    at, level, logger, message = (str(line.get(key, "")) for key in ("at", "level", "logger", "message"))
    return f"{_time(at)} {level} {logger}: {message}"


def _time(text: str) -> str:
    """Return the time in the zone of the page, with milliseconds; invalid text is returned unchanged."""
    moment = _line_time(text)
    return text if moment is None else display.clock(moment)


def _line_time(text: str) -> datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def _timed(lines: list[str], entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the time of each line as an element, and the rest. Redaction may have changed the lines and their
    number, so it is their beginning that tells which of them has which time.
    """
    moments: dict[str, deque[datetime]] = defaultdict(deque)
    for line in entry.get("lines", []):
        moment = _line_time(str(line.get("at", "")))
        if moment is not None:
            moments[display.clock(moment)].append(moment)
    for line in lines:
        clock, space, rest = line.partition(" ")
        if moments.get(clock):
            yield display.clock_time(moments[clock].popleft()), space + rest
        else:
            yield "", line
