"""A look at the queue as styled lines, which fit the screen. A screen only has to show them."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...postgres.clock import local
from .._output import SPACE, Marks, aligned, cells, cut, marks_for, plain, terminal_size, widths
from .panes import PANES, SORTS, Cell, headline, panes, tiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from .panes import Pane, Reading

if TYPE_CHECKING:
    Line = Sequence[Cell]


_LONGEST_HEADLINE = 3  # lines
_ROOMY = (100, 32)  # columns and lines from which on the tiles have frames
_AROUND = 2  # the head of a pane, and an empty line before it


def report(reading: Reading, width: int | None, marks: Marks) -> Iterator[str]:
    """Yield everything as lines of plain text."""
    first = headline(reading).text
    yield from textwrap.wrap(first, width) if width else [first]
    yield ""
    facts = [(f"{label}:", cell.text) for label, cell in tiles(reading, marks)]
    room = max(10, *(cells(label) for label, _ in facts))
    for label, text in facts:
        fact = f"{aligned(label, room, marks=marks)} {text}"
        yield cut(fact, width, marks) if width else fact
    for pane in panes(reading, marks, {}).values():
        yield ""
        for line in _table(pane, len(pane.rows), width, marks):
            yield "".join(cell.text for cell in line).rstrip()


def picture(now: Reading, last: Reading, view: View, size: tuple[int, int], marks: Marks) -> list[Line]:
    """Return the lines of a screen of this size: exactly as many as it has, or fewer.

    ``now``: the newest look, which may have failed. ``last``: the newest one that has not.
    """
    width, height = size
    paused = ", paused" if view.is_paused else ""
    title = f"pgqueue top: {now.database}, {local(last.at):%H:%M:%S}{paused}"
    lines: list[Line] = [[Cell(title, "dim")], *_headline(headline(now if now.error else last), width)]
    lines += _tiles(tiles(last, marks), size, marks)
    every = panes(last, marks, view.sorts)
    shown = {view.pane: every[view.pane]} if view.pane else every
    most = shares({name: len(pane.rows) or 1 for name, pane in shown.items()}, height - len(lines) - 2)
    for name, pane in shown.items():
        lines += [[], *_table(pane, most[name], width, marks)]
    lines = [*lines[: height - 2], [], [Cell(view.help, "dim")]]
    return [_cut(line, width, marks) for line in lines]


def shares(rows: Mapping[str, int], height: int) -> dict[str, int]:
    """Return how many rows each pane may show in ``height`` lines.

    Panes with few rows show them all, and the others share what is left. A pane that does not show all of its
    rows needs a line to say so.
    """
    left = height - _AROUND * len(rows)
    found: dict[str, int] = {}
    for place, (name, count) in enumerate(sorted(rows.items(), key=lambda item: item[1])):
        fair = max(0, left) // (len(rows) - place)
        found[name] = count if count <= fair else max(0, fair - 1)
        left -= min(count, fair)
    return found


def _headline(cell: Cell, width: int) -> list[Line]:
    lines = textwrap.wrap(cell.text, width - 2, max_lines=_LONGEST_HEADLINE, placeholder=" ...")
    return [[Cell(aligned(f" {line}", width), cell.style)] for line in lines]


def _tiles(found: list[tuple[str, Cell]], size: tuple[int, int], marks: Marks) -> list[Line]:
    """Return the tiles side by side: framed if there is room, otherwise two in a line."""
    width, height = size
    if width < _ROOMY[0] or height < _ROOMY[1]:
        room = width // 2 - 1
        parts = [
            (
                Cell(f"{label}: ", "head"),
                cell._replace(text=aligned(cell.text, room - len(label) - 2, marks=marks)),
            )
            for label, cell in found
        ]
        return [[*parts[0], *parts[1]], [*parts[2], *parts[3]]]
    room = width // len(found) - 3
    first, line, second, side, third, fourth = list(marks.box)
    top, middle, bottom = [], [], []
    for label, cell in found:
        top += [Cell(f"{first}{line} ", "dim"), Cell(label, "head"),
                Cell(f" {line * (room - len(label) - 3)}{second} ", "dim")]  # fmt: skip
        middle += [Cell(f"{side} ", "dim"), Cell(aligned(cell.text, room - 2, marks=marks), cell.style),
                   Cell(f" {side} ", "dim")]  # fmt: skip
        bottom.append(Cell(f"{third}{line * room}{fourth} ", "dim"))
    return [top, middle, bottom]


def _table(pane: Pane, most: int, width: int | None, marks: Marks) -> Iterator[Line]:
    """Yield the head, the rows, and how many rows are left out."""
    rows = [[Cell(plain(text), style) for text, style in row] for row in pane.rows[:most]]
    heads = [Cell(name, "head") for name in pane.head]
    sizes = widths([[cell.text for cell in row] for row in (heads, *rows)], width)
    if not pane.rows:
        yield heads[:1]
        yield [Cell(pane.empty, "dim")]
        return
    for row in (heads, *rows):
        texts = [
            aligned(cell.text, size, place in pane.right, marks) + SPACE
            for place, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        texts[-1] = texts[-1].rstrip()
        yield [cell._replace(text=text) for cell, text in zip(row, texts, strict=True)]
    if hidden := len(pane.rows) - len(rows):
        yield [Cell(f"{marks.ellipsis} {hidden} more", "dim")]


def _cut(line: Line, width: int, marks: Marks) -> Line:
    """Return a line that takes at most ``width`` columns."""
    kept: list[Cell] = []
    left = width
    for cell in line:
        kept.append(cell._replace(text=cut(cell.text, left, marks)))
        left -= cells(cell.text)
        if left <= 0:
            break
    return kept


# ----------------------------------------------------------------------------
# What the user of ``top`` has chosen with the keys.


@dataclass(slots=True)
class View:
    """The state that keys change."""

    pane: str = ""
    """The only pane that is shown; empty for all."""
    is_paused: bool = False
    sorts: dict[str, str] = field(default_factory=lambda: {name: orders[0] for name, orders in SORTS.items()})

    def press(self, key: str) -> bool:
        """Change what a key changes. Return whether anything has changed."""
        if key == "p":
            self.is_paused = not self.is_paused
        elif key == "0":
            self.pane = ""
        elif key.isdecimal() and 0 < int(key) <= len(PANES):
            self.pane = PANES[int(key) - 1]
        elif key == "s":
            name = self.pane or PANES[0]
            orders = SORTS[name]
            self.sorts[name] = orders[(orders.index(self.sorts[name]) + 1) % len(orders)]
        else:
            return False
        return True

    @property
    def help(self) -> str:
        """What the keys do."""
        numbers = "  ".join(f"{number} {name}" for number, name in enumerate(("all", *PANES)))
        pause = "go on" if self.is_paused else "pause"
        return f"q quit  p {pause}  r now  {numbers}  s sorted by {self.sorts[self.pane or PANES[0]]}"


# ----------------------------------------------------------------------------
# A screen without Rich: it is cleared, and written again as plain text.


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
