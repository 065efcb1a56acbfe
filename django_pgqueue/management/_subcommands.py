"""The subcommands of ``manage.py pgqueue``: each module of the package ``subcommands`` is one of them.

To add a subcommand, add a module with the names of ``Subcommand``, and its section in
``docs/reference/commands.md``.
"""

from __future__ import annotations

from argparse import SUPPRESS
from copy import copy
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import subcommands

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

DEFAULT = "status"
"""The subcommand that is meant if there is none."""


class Subcommand(Protocol):
    """What a module of the package ``subcommands`` contains."""

    NAME: str
    """The word after ``manage.py pgqueue``: the name of the module, with hyphens for underscores."""
    HELP: str
    """What it does, in a sentence without a period."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add its own arguments. The command adds ``--database`` and Django's own options."""

    def run(self, options: dict[str, Any], stdout: OutputWrapper) -> None:
        """Do it in the database ``options["database"]``, an alias that the command has checked.

        Raise ``ArgumentTypeError`` if the arguments cannot be used, and ``CommandError`` or an error of this
        package if it cannot be done.
        """


def found() -> dict[str, Subcommand]:
    """Return the subcommands by name."""
    names = sorted(module.name for module in iter_modules(subcommands.__path__) if module.name[0] != "_")
    modules = [cast("Subcommand", import_module(f"{subcommands.__name__}.{name}")) for name in names]
    return {module.NAME: module for module in modules}


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
