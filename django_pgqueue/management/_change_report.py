"""What ``retry``, ``cancel`` and ``run-now`` say before, meanwhile and afterwards."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ..wording import counted
from ._output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.core.management.base import OutputWrapper

    from ._change_command import Change
    from ._changing import Done

__all__ = ["Report", "ask"]

INTERRUPTED = 130  # the exit code of a program that Ctrl-C has ended


class Report:
    """The words and the values about one change of ``matched`` jobs."""

    def __init__(
        self, change: Change, alias: str, matched: int, options: dict[str, Any], stdout: OutputWrapper
    ) -> None:
        self._change = change
        self._alias = alias
        self._matched = matched
        self._options = options
        self._stdout = stdout
        self._is_shown = False
        self.is_stopped = False
        """Whether Ctrl-C has ended it before the last job."""
        self.unchanged: Sequence[int] = ()
        """The ids that were given, and did not change."""

    def would(self, counts: dict[str, int]) -> str:
        """Return how many jobs are meant, and in which states they are."""
        states = ", ".join(f"{number} {status}" for status, number in counts.items())
        which = f" ({states})" if len(counts) > 1 else ""
        one, many = self._change.would
        jobs = counted(self._matched, f"{states.partition(' ')[2]} job" if len(counts) == 1 else "job")
        return f"{jobs}{which} {one if self._matched == 1 else many}."

    def show(self, done: Done) -> None:
        """Show how far it is, if somebody watches."""
        if sys.stderr.isatty() and not (self._options.get("quiet") or self._options.get("json")):
            self._is_shown = True
            sys.stderr.write(f"\r{done.tried:,} of {done.matched:,} jobs ")
            sys.stderr.flush()

    def end(self, changed: int, tried: int, counts: dict[str, int] | None = None) -> None:
        """Print the outcome. Raise ``CommandError`` if Ctrl-C has ended it before its end."""
        if self._is_shown:
            sys.stderr.write("\r\033[K")
        is_dry = bool(self._options.get("dry_run"))
        if self._options.get("json"):
            document = {
                "database": self._alias,
                "action": self._change.name,
                "dry_run": is_dry,
                "matched": self._matched,
                "changed": changed,
                "left_alone": max(0, tried - changed),
                "unchanged": list(self.unchanged),
                "stopped": self.is_stopped,
            }
            print_json(self._stdout, document)
        elif not self._options.get("quiet"):
            self._stdout.write(self._sentence(changed, tried, counts or {}, is_dry))
        if self.is_stopped:
            raise CommandError(
                f"Stopped. {counted(changed, 'job')} of {self._matched} changed; the others did not.",
                returncode=INTERRUPTED,
            )

    def _sentence(self, changed: int, tried: int, counts: dict[str, int], is_dry: bool) -> str:
        if not self._matched:
            return "No job matches. Nothing has changed."
        if is_dry:
            return f"{self.would(counts)} Nothing has changed."
        one, many = self._change.does
        text = f"{counted(changed, 'job')} {one if changed == 1 else many}."
        left = max(0, tried - changed)
        if left and not self.unchanged:
            was, they = ("was", "it was") if left == 1 else ("were", "they were")
            text += (
                f" {counted(left, 'job')} {was} left alone: {they} in another state by then"
                f"{self._change.or_else}."
            )
        return text


def ask(question: str, options: dict[str, Any]) -> None:
    """Ask whether to go on. Raise ``CommandError`` if not, and ``ArgumentTypeError`` if nobody can answer.

    The question is printed to standard error: standard output may be read by a program.
    """
    if options.get("yes"):
        return
    if not sys.stdin.isatty():
        raise ArgumentTypeError(f"{question} Nobody can be asked here: add --yes to do it.")
    sys.stderr.write(f"{question} Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing has changed.")
