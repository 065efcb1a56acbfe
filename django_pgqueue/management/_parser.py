"""The parser of both commands, which names what the user may have meant, and the subcommands of ``pgqueue``.

To add a subcommand, decorate a function in a module of the package ``subcommands`` with ``subcommand()``,
and write its section in ``docs/reference/commands.md``.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from operator import methodcaller
from pkgutil import iter_modules
from typing import Any, Literal, NoReturn, TypeAlias, cast

from django.core.management.base import CommandError, CommandParser

from ..tasks.misuse import words
from . import subcommands
from ._output import Output, no_reader

Run: TypeAlias = Callable[[dict[str, Any]], Output]

Shards: TypeAlias = Literal["one", "each", "list", "commit", "all"]
"""Where it works without ``--database`` if there are shards: in one; in each of them, to read, also if only
its action ``list`` does so, or with a commit in each; or in all of ``options["shards"]`` together."""

#: The subcommand that is meant if there is none.
DEFAULT = "status"

#: Exit codes, besides 0 and 1: arguments that cannot be used, and what SIGINT and SIGPIPE end.
USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141


def hinting(parser: CommandParser, default: str = "") -> Parser:
    """Let the parser of Django hint. ``default``: the subcommand that is meant if there is none."""
    parser.__class__ = Parser
    hints = cast("Parser", parser)
    hints.default = default
    return hints


class Parser(CommandParser):
    """A parser that hints."""

    default = ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments."""
        found, unknown = self.parse_known_args(args, namespace)
        if self.default and found.subcommand is None:
            given = sys.argv[1:] if args is None else args
            found, unknown = self.parse_known_args([self.default, *given], namespace)
        if unknown:
            hints = (_hint(word.partition("=")[0], [*_options(self, found)]) for word in unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}.{next(filter(None, hints), '')}")
        return found

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = _hint(str(value), known) or f" Choose from {', '.join(known)}."
            raise ArgumentError(action, f"invalid choice: {value!r}.{hint}")

    def error(self, message: str) -> NoReturn:
        """End the program, or raise ``CommandError`` if ``call_command`` has been called."""
        if self.called_from_command_line:
            super().error(message)
        raise CommandError(f"Error: {message}", returncode=USAGE)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the program, for example after its help."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            no_reader(sys.stdout)
            status = BROKEN_PIPE
        super().exit(status, message)


def _hint(word: str, known: Collection[str]) -> str:
    """Return a sentence with the word that is meant; empty if there is none."""
    theirs = (words()[owner].get(word, "") for owner in ("pgqueue", "pgqueue schedules"))
    near = [name for name in theirs if name in known]
    names = {name.lstrip("-"): name for name in known}  # the hyphens are no likeness
    near = near or [names[name] for name in get_close_matches(word.lstrip("-"), names, n=1)]
    return f" Did you mean {near[0]!r}?" if near else ""


def _options(parser: ArgumentParser, found: Namespace) -> Iterator[str]:
    """Yield the options of a parser, and of the subcommand that was chosen."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, _SubParsersAction) and (name := getattr(found, action.dest)) is not None:
            yield from _options(action.choices[name], found)


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand of ``manage.py pgqueue``."""

    help: str  # what it does, in a sentence without a period
    arguments: Sequence[Callable[[ArgumentParser], Any]]
    """Each adds one or some. The command adds ``--json``, ``--database`` and Django's own."""
    has_json: bool  # whether it has the option ``--json``
    run: Run
    shards: Shards = "one"


_SUBCOMMANDS: dict[str, Subcommand] = {}

#: An argument of a subcommand, with the arguments of ``ArgumentParser.add_argument()``.
argument = partial(methodcaller, "add_argument")


def subcommand(
    name: str,
    sentence: str,
    *arguments: Callable[[ArgumentParser], Any],
    has_json: bool = True,
    shards: Shards = "one",
) -> Callable[[Run], Run]:
    """Make a function a subcommand.

    It does its work in the database ``options["database"]``, an alias that the command has checked. It raises
    ``ArgumentTypeError`` if the arguments cannot be used, and ``CommandError`` or an error of this package if
    it cannot be done. ``options["stdout"]`` is for what cannot be an ``Output``.
    """

    def register(run: Run) -> Run:
        _SUBCOMMANDS[name] = Subcommand(sentence, arguments, has_json, run, shards)
        return run

    return register


def found() -> dict[str, Subcommand]:
    """Return the subcommands by name."""
    for module in iter_modules(subcommands.__path__):
        import_module(f"{subcommands.__name__}.{module.name}")
    return dict(sorted(_SUBCOMMANDS.items()))


def accept_options(parser: ArgumentParser, outer: ArgumentParser) -> None:
    """Accept the options of the outer parser in this one, too, so that ``--settings`` may come last.

    They have no default here, because it would replace the value that was given before the subcommand.
    """
    own = {name for action in parser._actions for name in action.option_strings}
    for action in outer._actions:
        if action.option_strings and own.isdisjoint(action.option_strings):
            option = copy(action)
            option.default = SUPPRESS
            parser._add_action(option)
