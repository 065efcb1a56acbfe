"""Print exceptions as the standard library does, but several times faster.

Most of the time goes to the carets below a line of source: to place them, the standard library parses the
line again for each frame that it prints. Jobs fail at the same places again and again, so the text of each
place is kept. If a file changes while the process runs, its old lines are still shown for known places; they
are the code that runs.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["format_error", "shorten"]

MOST = 1_000  # places whose text is kept

_CUT = "\n... {} bytes left out ...\n"
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


def shorten(text: str, limit: int) -> str:
    """Cut the text to ``limit`` bytes. Keep more of the end, because the end of a traceback matters most."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= limit:
        return text
    head = limit // 4
    tail = limit - head
    left_out = len(data) - limit
    first, last = (part.decode(errors="ignore") for part in (data[:head], data[len(data) - tail :]))
    return first + _CUT.format(left_out) + last


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
