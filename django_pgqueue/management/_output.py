"""What the subcommands print: lines, tables and facts for a terminal, or JSON.

Values that come from jobs may contain anything, also sequences that a terminal obeys, so everything is
printed with its control characters written out.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import TextIOWrapper
from typing import Any, TextIO, TypeAlias
from unicodedata import combining, east_asian_width

from django.core.management.base import CommandError, OutputWrapper

from ..formatting import plain

_SPACE = "  "  # between two columns
_KEPT = "\0"  # a space that is no place to break a line
_NARROWEST = 40
_NOTHING = ("", "-", "0")


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


Columns: TypeAlias = Mapping[str, Callable[..., str]]  # what each column says of a row


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or ``empty`` if there are no rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]  # texts; where they have styles, pairs of both
    right: Collection[int] = ()  # the columns that are aligned to the right
    empty: str = ""

    @classmethod
    def of(cls, columns: Columns, rows: Iterable[Any], right: Collection[int] = (), empty: str = "") -> Table:
        """Return the table of what the columns say."""
        return cls([*columns], [[text(row) for text in columns.values()] for row in rows], right, empty)

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yield the lines. Nothing is cut: if the table is wider than ``width``, columns in which no row says
        anything are left out, and the last ones that do not fit follow below their row.
        """
        if not self.rows:
            yield self.empty
            return
        every = [[plain(text) for text in row] for row in (self.head, *self.rows)]
        places = [*range(len(self.head))]
        if width is not None and _width(_sizes(every)) > width:
            places = [place for place in places if any(row[place] not in _NOTHING for row in every[1:])]
            every = [[row[place] for place in places] for row in every]
        sizes = _sizes(every)
        fit = len(sizes)
        while width is not None and fit > 1 and _width(sizes[:fit]) > width:
            fit -= 1
        for row in every:
            cells = zip(row[:fit], sizes, places, strict=False)
            aligned = (_aligned(text, size, place in self.right) for text, size, place in cells)
            yield _SPACE.join(aligned).rstrip()
            if row is not every[0]:
                yield from _below(every[0][fit:], row[fit:], width)


Block: TypeAlias = str | Mapping[str, str | None] | Table  # a line, facts with their labels, or a table


@dataclass(frozen=True, slots=True)
class Output:
    """What a subcommand prints."""

    text: Iterable[Block] = ()
    document: Any = None  # what it prints with ``--json``
    error: str = ""  # what it ends with afterwards; empty if it has done its work
    code: int = 1  # its exit code then
    answer: str = ""  # what the text or the document has said, if the exit code says "no"

    def print(self, stdout: OutputWrapper, *, as_json: bool) -> None:
        """Print it as text, as wide as the terminal, or as JSON. Raise its error."""
        if as_json and self.document is not None:
            print_json(stdout, self.document)
        else:
            width = max(_NARROWEST, shutil.get_terminal_size().columns) if stdout.isatty() else None
            for block in self.text:
                for line in lines(block, width):
                    stdout.write(line)
        if self.error:
            raise CommandError(self.error, returncode=self.code)
        if self.answer:
            raise No(self.answer)


class No(CommandError):
    """The answer is no, and has been printed. On a command line, only the exit code repeats it."""


class Nothing(CommandError):
    """There is no such thing in this database. Another shard may have it."""


def print_json(stdout: OutputWrapper, document: Any) -> None:
    """Print one document, with times in ISO format and durations in seconds. Outputs that are not in UTF-8
    get ASCII only.

    JSON permits some control characters in texts, such as U+009B, which terminals obey, so they are escaped.
    """
    text = json.dumps(
        document,
        indent=2,
        ensure_ascii=not _is_utf8(stdout),
        default=lambda value: value.total_seconds() if isinstance(value, timedelta) else value.isoformat(),
    )
    shown = (char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    stdout.write("".join(shown))


def _is_utf8(stdout: Any) -> bool:
    """Return whether an output is in UTF-8. A text in memory has no encoding, and takes everything."""
    return (getattr(stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def plain_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, such as a traceback, with their control characters written out."""
    for line in text.rstrip().split("\n"):
        yield plain(line.removesuffix("\r").expandtabs(4))


def lines(block: Block, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a block. A fact without a text is left out."""
    if isinstance(block, str):
        yield plain(block)
    elif isinstance(block, Table):
        yield from block.lines(width)
    else:
        known = {f"{label}:": text for label, text in block.items() if text}
        room = max(map(_cells, known), default=0) + 1
        for label, text in known.items():
            yield from _wrapped(f"{_SPACE}{_aligned(label, room)}{plain(text)}", width, " " * (2 + room))


def _sizes(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how many columns of a terminal each column of a table takes."""
    return [max(map(_cells, column)) for column in zip(*rows, strict=True)]


def _width(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(_SPACE) * (len(sizes) - 1)


def _below(head: Sequence[str], row: Sequence[str], width: int | None) -> Iterator[str]:
    """Yield what did not fit into a row, with the names of its columns. A line breaks between two of them."""
    indent = 2 * _SPACE
    pairs = zip(head, row, strict=True)
    said = [f"{name}: {text}" if name else text for name, text in pairs if text not in _NOTHING]
    room = (width or 0) - len(indent)
    whole = [text.replace(" ", _KEPT) if len(text) < room else text for text in said]
    for line in _wrapped(indent + _SPACE.join(whole), width, indent) if said else ():
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
