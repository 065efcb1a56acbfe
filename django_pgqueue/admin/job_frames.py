"""The frames of a traceback that belong to the project, which its developers look for first."""

from __future__ import annotations

import re

__all__ = ["application_part"]

_FRAME = re.compile(r'^ *(?:\+ |\| )*File "([^"]*)", line \d+.*$')
#: Parts of paths of installed packages, and of Python itself.
_ELSEWHERE = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]|^<frozen ")


def application_part(traceback: str) -> str:
    """Return the traceback without the frames of installed packages and of Python. Empty if there are none of
    these, or if no others would be left.
    """
    kept: list[str] = []
    is_shown, count, left_out = True, 0, 0
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_shown = _ELSEWHERE.search(frame[1]) is None
            count, left_out = count + is_shown, left_out + (not is_shown)
        elif not line.startswith(("    ", "  |     ")):
            is_shown = True  # what follows the frames
        if is_shown:
            kept.append(line)
    return "\n".join(kept) if count and left_out else ""
