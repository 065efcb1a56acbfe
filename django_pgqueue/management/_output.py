"""What the subcommands print: text without control characters, tables that fit the terminal, and JSON.

Values that come from jobs may contain anything, also sequences that a terminal obeys. So each of them is
printed with its control characters written out.
"""

from __future__ import annotations

import json
import os
import textwrap
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO
from unicodedata import combining, east_asian_width

from ..formatting import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from django.core.management.base import OutputWrapper

__all__ = [
    "SPACE", "Marks", "aligned", "cells", "cut", "fitting", "marks_for", "no_reader", "plain", "plain_lines",
    "prepare", "print_json", "table", "terminal_size", "width_of", "widths",
]  # fmt: skip

SPACE = "  "
"""What stands between two columns."""

_KEPT = "\0"  # a space that is no place to break a line
_NARROWEST = 40
_LEAST_COLUMN = 5


class Marks(NamedTuple):
    """The characters for what has been cut, and for bars."""

    ellipsis: str = "…"
    full: str = "█"
    empty: str = "░"
    box: str = "╭─╮│╰╯"
    """The characters of a frame: corner, line, corner, side, corner, corner."""

    def bar(self, share: float, width: int) -> str:
        """Return a bar of which this share, from 0 to 1, is full. It is full only if the share is 1."""
        length = int(min(1.0, max(0.0, share)) * width)
        return self.full * length + self.empty * (width - length)


_UTF8, _ASCII = Marks(), Marks("...", "#", "-", "+-+|++")


def prepare(stdout: OutputWrapper) -> None:
    """Let an output that is not in UTF-8 show other characters as escapes, instead of raising an error."""
    out: Any = stdout._out
    if isinstance(out, TextIOWrapper) and not _encoding(out).startswith("utf"):
        out.reconfigure(errors="backslashreplace")


def no_reader(stdout: OutputWrapper | TextIO) -> None:
    """Give up an output whose reader is gone, as with ``| head``, so that Python's exit does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)


def marks_for(stdout: Any) -> Marks:
    """Return the characters that this output can show."""
    return _UTF8 if _encoding(stdout).startswith("utf") else _ASCII


def width_of(stdout: Any) -> int | None:
    """Return the columns of the terminal; None if the output is a pipe or a file, where nothing is cut."""
    if not stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    return max(_NARROWEST, int(columns) if columns.isdecimal() else terminal_size(stdout)[0])


def terminal_size(stdout: Any) -> tuple[int, int]:
    """Return the columns and the lines of the terminal that an output is, as they are now."""
    try:
        columns, lines = os.get_terminal_size(stdout.fileno())
    except (AttributeError, OSError, ValueError):
        columns, lines = 0, 0
    return columns or 80, lines or 24


def print_json(stdout: OutputWrapper, document: Any) -> None:
    """Print one document. Outputs that are not in UTF-8 get ASCII only.

    JSON permits some control characters in texts, such as U+009B, which terminals obey, so they are escaped.
    """
    is_ascii = not _encoding(stdout).startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=is_ascii)
    stdout.write("\n".join(_escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    """Return a line of JSON in which all characters can be printed."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def plain_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, such as a traceback, with their control characters written out."""
    for line in text.rstrip().split("\n"):
        yield plain(line.removesuffix("\r").expandtabs(4))


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, width: int, marks: Marks = _UTF8) -> str:
    """Return a text that takes at most ``width`` columns, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    end = marks.ellipsis if width > len(marks.ellipsis) else ""
    kept, left = [], width - len(end)
    for char in text:
        left -= cells(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + end


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
    marks: Marks = _UTF8,
) -> str:
    """Return a table. The columns ``right`` are aligned to the right. If it is wider than ``width``, its
    widest columns are cut.
    """
    every = [[plain(text) for text in row] for row in (head, *rows)]
    sizes = widths(every, width)
    lines = [
        SPACE.join(
            aligned(text, size, place in right, marks)
            for place, (text, size) in enumerate(zip(row, sizes, strict=True))
        ).rstrip()
        for row in every
    ]
    return "\n".join(lines if width is None else [cut(line, width, marks) for line in lines])


def fitting(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
    marks: Marks = _UTF8,
) -> str:
    """Return a table in which nothing is cut. If it is wider than ``width``, columns in which no row says
    anything are left out; if that is not enough, it is a paragraph for each row.
    """
    every = [[plain(text) for text in row] for row in (head, *rows)]
    places = list(range(len(head)))
    if width is None or _is_in(every, width):
        return table(head, rows, right=right)
    places = [place for place in places if any(_says(row[place]) for row in every[1:])]
    every = [[row[place] for place in places] for row in every]
    if _is_in(every, width):
        return table(every[0], every[1:], right=[new for new, place in enumerate(places) if place in right])
    return "\n".join(line for row in every[1:] for line in _paragraph(every[0], row, width, marks))


def _is_in(rows: Sequence[Sequence[str]], width: int) -> bool:
    sizes = widths(rows, None)
    return sum(sizes) + len(SPACE) * (len(sizes) - 1) <= width


def _says(text: str) -> bool:
    return text not in ("", "-", "0")


def _paragraph(head: Sequence[str], row: Sequence[str], width: int, marks: Marks) -> Iterator[str]:
    yield cut(row[0], width, marks)
    said = [f"{name}: {text}" for name, text in zip(head[1:], row[1:], strict=True) if _says(text)]
    whole = [text.replace(" ", _KEPT) if len(text) < width - len(SPACE) else text for text in said]
    for line in textwrap.wrap(", ".join(whole), width, initial_indent=SPACE, subsequent_indent=SPACE):
        yield line.replace(_KEPT, " ")


def widths(rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Return the width of each column, so that a row takes at most ``width``, if that is possible."""
    found = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    while width is not None and sum(found) + len(SPACE) * (len(found) - 1) > width:
        if max(found) <= _LEAST_COLUMN:
            break
        found[found.index(max(found))] -= 1
    return found


def aligned(text: str, width: int, to_the_right: bool = False, marks: Marks = _UTF8) -> str:
    """Return a text that takes exactly ``width`` columns."""
    text = cut(text, width, marks)
    space = " " * (width - cells(text))
    return space + text if to_the_right else text + space


def _encoding(stdout: Any) -> str:
    """Return the encoding of an output; a text in memory has none, and takes everything."""
    return (getattr(stdout, "encoding", None) or "utf-8").lower()
