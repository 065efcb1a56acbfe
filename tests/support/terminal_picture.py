"""A picture of ``manage.py pgqueue top`` for the docs, as SVG without anything from elsewhere."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console

from django_pgqueue.management._output import Marks
from django_pgqueue.management._top.drawing import View, picture
from django_pgqueue.management._top.panes import read
from django_pgqueue.management._top.rich_screen import text_of

__all__ = ["draw"]

_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw(alias: str, columns: int = 140, lines: int = 44, pane: str = "") -> str:
    """Return what a terminal of this size shows now. ``pane``: the only one that is shown."""
    reading = read(alias)
    shown = picture(reading, reading, View(pane=pane), (columns, lines), Marks())
    console = Console(
        record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor",
        highlight=False,
    )  # fmt: skip
    console.print(text_of(shown))
    svg = console.export_svg(title="manage.py pgqueue top", unique_id="top")
    # Rich names a font on a server of its own choice.
    return _FONT.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
