"""A picture of ``manage.py pgqueue top`` for the docs, as SVG without anything from elsewhere."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console

from django_pgqueue.management.subcommands.top import View, look, picture

_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw(alias: str, columns: int = 140, lines: int = 44, pane: str = "") -> str:
    """Return what a terminal of this size shows now. ``pane``: the only one that is shown."""
    found = look([alias])
    console = Console(
        record=True, width=columns, height=lines, file=StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip
    console.print(picture(found, found.given, View([alias], pane=pane), console))
    svg = console.export_svg(title="manage.py pgqueue top", unique_id="top")
    # Rich names a font on a server of its own choice.
    return _FONT.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
