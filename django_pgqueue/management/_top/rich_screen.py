"""The screen with Rich: colors as the terminal can show them, and a screen that disappears at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from .._output import marks_for, terminal_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from .drawing import Line

_STYLES = {
    "": "", "good": "green", "bad": "bold red", "warn": "yellow", "dim": "dim", "bar": "cyan", "head": "bold",
    "alarm": "bold white on red", "calm": "bold black on green",
}  # fmt: skip


class RichScreen:
    """Draws on an output that is a terminal."""

    def __init__(self, stdout: Any, *, no_color: bool = False) -> None:
        self.marks = marks_for(stdout)
        self._stdout = stdout
        self._console = Console(file=stdout._out, highlight=False, no_color=no_color or None)
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def size(self) -> tuple[int, int]:
        """Return the columns and the lines."""
        size = terminal_size(self._stdout)
        self._console.size = ConsoleDimensions(*size)
        return size

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines."""
        self._live.update(text_of(lines), refresh=True)


def text_of(lines: Sequence[Line]) -> Text:
    """Return the lines for Rich. Nothing in them is markup."""
    return Text("\n", no_wrap=True).join(
        Text.assemble(*((cell.text, _STYLES[cell.style]) for cell in line)) for line in lines
    )
