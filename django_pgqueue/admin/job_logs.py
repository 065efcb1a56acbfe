"""The kept logs of a job as they are shown on its page: the lines of each attempt as one text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.dateparse import parse_datetime
from django.utils.timezone import localtime
from django.utils.translation import ngettext

from ..redaction import redact_text

if TYPE_CHECKING:
    from ..models import Job

__all__ = ["shown_logs"]


def shown_logs(job: Job) -> list[dict[str, Any]]:
    """Return what the template shows of each attempt, the last one first."""
    return [
        {
            "attempt": entry.get("attempt", ""),
            "count": _count(entry),
            "text": redact_text("\n".join(_lines(entry)), job.task_path),
        }
        for entry in reversed(job.logs or [])
    ]


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
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    return text if moment is None else f"{localtime(moment):%H:%M:%S.%f}"[:-3]
