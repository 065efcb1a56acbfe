"""What the subcommands print: text without control characters, tables and facts for a terminal, and JSON.

Values that come from jobs may contain anything, also sequences that a terminal obeys. So each of them is
printed with its control characters written out.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from io import TextIOWrapper
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from django.core.management.base import OutputWrapper

from ..formatting import plain

_SPACE = "  "  # between two columns
_KEPT = "\0"  # a space that is no place to break a line
_NARROWEST = 40


def prepare(stdout: OutputWrapper) -> None:
    """Let an output that is not in UTF-8 show other characters as escapes, instead of raising an error."""
    out: Any = stdout._out
    if isinstance(out, TextIOWrapper) and not _is_utf8(out):
        out.reconfigure(errors="backslashreplace")


def no_reader(stdout: OutputWrapper | TextIO) -> None:
    """Give up an output whose reader is gone, as with ``| head``, so that Python's exit does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)


def width_of(stdout: Any) -> int | None:
    """Return the columns of the terminal; None if the output is a pipe or a file."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if stdout.isatty() else None


def print_json(stdout: OutputWrapper, document: Any) -> None:
    """Print one document, with times in ISO format and durations in seconds. Outputs that are not in UTF-8
    get ASCII only.

    JSON permits some control characters in texts, such as U+009B, which terminals obey, so they are escaped.
    """
    text = json.dumps(document, indent=2, ensure_ascii=not _is_utf8(stdout), default=_json)
    stdout.write(
        "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    )


def _json(value: datetime | timedelta) -> str | float:
    return value.total_seconds() if isinstance(value, timedelta) else value.isoformat()


def _is_utf8(stdout: Any) -> bool:
    """Return whether an output is in UTF-8. A text in memory has no encoding, and takes everything."""
    return (getattr(stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def plain_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, such as a traceback, with their control characters written out."""
    for line in text.rstrip().split("\n"):
        yield plain(line.removesuffix("\r").expandtabs(4))


def print_facts(stdout: OutputWrapper, values: Mapping[str, str]) -> None:
    """Print labels and texts, as wide as the terminal."""
    for line in facts(values, width_of(stdout)):
        stdout.write(line)


def print_table(
    stdout: OutputWrapper,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    empty: str,
) -> None:
    """Print a table, as wide as the terminal, or ``empty`` if there are no rows."""
    stdout.write(table(head, rows, right=right, width=width_of(stdout)) if rows else empty)


def facts(values: Mapping[str, str], width: int | None = None) -> Iterator[str]:
    """Yield the lines of labels and texts. A fact without a text is left out."""
    room = max((_cells(label) for label, text in values.items() if text), default=0) + len(": ")
    for label, text in values.items():
        if text:
            line = f"{_SPACE}{_aligned(f'{label}:', room)}{plain(text)}"
            yield from _wrapped(line, width, " " * (len(_SPACE) + room))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    width: int | None = None,
) -> str:
    """Return a table, in which nothing is cut. The columns ``right`` are aligned to the right.

    If it is wider than ``width``, columns in which no row says anything are left out; if that is not enough,
    it is a paragraph for each row.
    """
    every = [[plain(text) for text in row] for row in (head, *rows)]
    places = list(range(len(head)))
    if width is not None and _whole(every) > width:
        places = [place for place in places if any(row[place] not in ("", "-", "0") for row in every[1:])]
        every = [[row[place] for place in places] for row in every]
        if _whole(every) > width:
            return "\n".join(line for row in every[1:] for line in _paragraph(every[0], row, width))
    sizes = _widths(every)
    return "\n".join(
        _SPACE.join(
            _aligned(text, size, place in right) for text, size, place in zip(row, sizes, places, strict=True)
        ).rstrip()
        for row in every
    )


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_cells, column)) for column in zip(*rows, strict=True)]


def _whole(rows: Sequence[Sequence[str]]) -> int:
    """Return how many columns of a terminal a table takes."""
    return len(_SPACE.join(" " * size for size in _widths(rows)))


def _paragraph(head: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield from _wrapped(row[0], width, _SPACE)
    pairs = zip(head[1:], row[1:], strict=True)
    said = [f"{name}: {text}" for name, text in pairs if text not in ("", "-", "0")]
    whole = [text.replace(" ", _KEPT) if len(text) < width - len(_SPACE) else text for text in said]
    for line in _wrapped(_SPACE + ", ".join(whole), width, _SPACE):
        yield line.replace(_KEPT, " ")


def _wrapped(line: str, width: int | None, indent: str) -> list[str]:
    if width is None:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def bar(share: float, width: int = 10) -> str:
    """Return a bar of which this share, from 0 to 1, is full. It is full only if the share is 1."""
    length = int(min(1.0, max(0.0, share)) * width)
    return "█" * length + "░" * (width - length)


def _cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _aligned(text: str, width: int, to_the_right: bool = False) -> str:
    """Return a text that takes ``width`` columns."""
    space = " " * (width - _cells(text))
    return space + text if to_the_right else text + space
