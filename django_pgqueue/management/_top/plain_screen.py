"""A screen without Rich: it is cleared, and written again as plain text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._output import marks_for, terminal_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from .drawing import Line

__all__ = ["PlainScreen"]


class PlainScreen:
    """Draws on an output that is a terminal."""

    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout
        # A terminal that cannot clear gets one picture below the other.
        self._begin = "\n" if os.environ.get("TERM", "dumb") == "dumb" else "\033[H\033[2J"
        self.marks = marks_for(stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("\n")

    def size(self) -> tuple[int, int]:
        """Return the columns and the lines. The last column stays empty: some terminals wrap after it."""
        columns, lines = terminal_size(self._stdout)
        return columns - 1, lines

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines."""
        self._write(self._begin + "\n".join("".join(cell.text for cell in line).rstrip() for line in lines))

    def _write(self, text: str) -> None:
        self._stdout.write(text, ending="")
        self._stdout.flush()
