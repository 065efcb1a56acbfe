"""The kept logs of a job as they are shown on its page: the lines of each attempt as one text.

Of a long log, the last lines are shown, and a link leads to those before them. The address of the link names
the attempt and the line after the last one that it shows (``?log=2:500``). Kept logs do not change, so these
addresses stay right.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from django.utils.dateparse import parse_datetime
from django.utils.html import format_html_join
from django.utils.translation import ngettext

from ...redaction import redact_text
from .. import display

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ...models import Job

__all__ = ["MOST_LINES", "shown_logs"]

MOST_LINES = 500


def shown_logs(job: Job, place: str = "") -> list[dict[str, Any]]:
    """Return what the template shows of each attempt, the last one first. ``place``: that of a link."""
    attempt, _, line = place.partition(":")
    end = int(line) if line.isdecimal() and len(line) < 10 else None
    return [
        _shown(job, entry, end if str(entry.get("attempt")) == attempt else None)
        for entry in reversed(job.logs or [])
    ]


def _shown(job: Job, entry: dict[str, Any], end: int | None) -> dict[str, Any]:
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
    moment = _moment(text)
    return text if moment is None else display.clock(moment)


def _moment(text: str) -> datetime | None:
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
        moment = _moment(str(line.get("at", "")))
        if moment is not None:
            moments[display.clock(moment)].append(moment)
    for line in lines:
        clock, space, rest = line.partition(" ")
        if moments.get(clock):
            yield display.clock_time(moments[clock].popleft()), space + rest
        else:
            yield "", line
