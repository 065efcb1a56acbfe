"""The part of a traceback that lies in the code of the project: its frames without those of libraries."""

from __future__ import annotations

import re

__all__ = ["application_part"]

_FRAME = re.compile(r'^(\s*(?:\| )?)  File "(?P<file>[^"]*)", line \d+')
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "\\site-packages\\", "\\Lib\\")


def application_part(traceback: str) -> str:
    """Return the traceback without the frames of libraries; empty if there are none, or no others."""
    kept: list[str] = []
    left_out = frames = 0
    skipping = False
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame:
            skipping = any(part in frame["file"] for part in _LIBRARIES)
            left_out += skipping
            frames += not skipping
        elif skipping and not line.startswith("    "):
            skipping = False  # the line of the exception, or a heading
        if not skipping:
            kept.append(line)
    return "\n".join(kept) if left_out and frames else ""
