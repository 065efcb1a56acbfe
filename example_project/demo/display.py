"""Text and progress bars on a terminal, or plain lines if the output is not a terminal."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from collections import deque
from typing import TextIO

HEIGHTS = "▁▂▃▄▅▆▇█"
FIRST_COLUMN = 16  # characters, with the blanks around it
STYLES = {"bold": "1", "quiet": "2", "hit": "30;43", "good": "32", "bad": "31", "name": "36"}


class Screen:
    """The output of the demonstration. It uses colors only on a terminal, and only if NO_COLOR is not set."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.has_colors = self.is_terminal and not os.environ.get("NO_COLOR")

    def say(self, text: str = "") -> None:
        """Print a line."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def title(self, text: str) -> None:
        """Print the title of a section."""
        self.say(f"\n{self.style(text, 'bold')}")

    def fact(self, name: str, text: str) -> None:
        """Print a text with its name in the first column. Long texts without colors are wrapped."""
        room = max(20, shutil.get_terminal_size().columns - FIRST_COLUMN)
        lines = [text] if "\x1b" in text else textwrap.wrap(text, room) or [""]
        self.say(f"  {self.style(f'{name:<13}', 'name')} {lines[0]}")
        for line in lines[1:]:
            self.say(f"{'':{FIRST_COLUMN}}{line}")

    def style(self, text: str, name: str) -> str:
        """Return the printable text, in one of STYLES if colors are used."""
        text = printable(text)
        return f"\x1b[{STYLES[name]}m{text}\x1b[0m" if self.has_colors else text

    def mark(self, text: str) -> str:
        """Return the text marked as a match, by colors or by brackets."""
        return self.style(text if self.has_colors else f"[{text}]", "hit")


def printable(text: str) -> str:
    """Replace the characters in a text that could control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit."""
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.1 else 0}f} ms"
    return f"{seconds:.1f} s"


class Live:
    """Shows progress, rate and depth of a run of `total` jobs. Depth is the number of jobs that are not over.

    On a terminal, each update overwrites the previous one. Otherwise, a line is printed every two seconds.
    """

    WINDOW = 2.0  # seconds over which the rate is measured

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total
        self._began = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._rates: list[float] = []
        self._drawn = 0
        self._next_line = self._began

    def update(self, depth: int, failed: int, *, is_last: bool = False) -> None:
        """Show the current state."""
        now = time.monotonic()
        done = self._total - depth
        self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[0][0] < now - self.WINDOW:
            self._samples.popleft()
        (then, before) = self._samples[0]
        rate = (done - before) / (now - then) if now > then else 0.0
        self._rates.append(rate)
        seconds = now - self._began
        if self._screen.is_terminal:
            self._draw(done, depth, failed, rate, seconds)
        elif now >= self._next_line or is_last:
            self._next_line = now + 2
            self._screen.say(
                f"  {seconds:5.1f} s  {done:,} of {self._total:,}  {rate:,.0f} jobs/s  "
                f"depth {depth:,}  {failed} failed"
            )

    def say(self, text: str) -> None:
        """Print a permanent line above the lines that are overwritten."""
        up = f"\x1b[{self._drawn}A\r\x1b[2K" if self._drawn else ""
        self._screen.say(f"{up}  {text}")
        self._drawn = 0

    def _draw(self, done: int, depth: int, failed: int, rate: float, seconds: float) -> None:
        style = self._screen.style
        width = max(10, min(50, shutil.get_terminal_size().columns - 44))
        share = done / self._total if self._total else 1.0
        filled = round(width * share)
        bar = style("━" * filled, "good") + style("─" * (width - filled), "quiet")
        trouble = style(f"{failed} failed", "bad") if failed else "none failed"
        lines = [
            f"  {style('Progress', 'name')}  {bar} {share:4.0%}  {done:,} of {self._total:,}",
            f"  {style('Rate', 'name')}      {self._curve(width)} {rate:4,.0f} jobs/s",
            f"  {style('Depth', 'name')}     {depth:,} left, {trouble}, {seconds:.0f} s",
        ]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._screen.stream.write(up + "".join(f"\r\x1b[2K{line}\n" for line in lines))
        self._screen.stream.flush()
        self._drawn = len(lines)

    def _curve(self, width: int) -> str:
        """Return a curve of the rates so far, with at most `width` characters."""
        step = max(1, -(-len(self._rates) // width))
        points = [max(self._rates[at : at + step]) for at in range(0, len(self._rates), step)]
        top = max(self._rates) or 1.0
        curve = "".join(HEIGHTS[round(point / top * (len(HEIGHTS) - 1))] for point in points)
        return self._screen.style(f"{curve:<{width}}", "good")
