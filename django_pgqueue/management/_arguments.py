"""Types of command line arguments, with the error messages for values that they refuse."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.utils.translation import gettext as _

from ..compat import InvalidTask
from ..conf_values import weight
from ..routing import default_backend
from ..validation import queue_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "at_least",
    "check_one_process",
    "database_alias",
    "given_names",
    "given_queues",
    "queue_names",
    "weighted_queues",
    "writable_path",
]


def queue_names(text: str) -> tuple[str, ...]:
    """Parse ``mail,default`` into a tuple without repetitions."""
    names = [name.strip() for name in text.split(",")]
    try:
        return tuple(dict.fromkeys(queue_name(name) for name in names))
    except InvalidTask as error:
        raise ArgumentTypeError(str(error)) from None


def weighted_queues(text: str) -> dict[str, int | None]:
    """Parse ``critical:6,default:3,low`` into a dict of weights; None: the queue has none."""
    queues: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, number = (each.strip() for each in part.partition(":"))
        try:
            queues[queue_name(name)] = (
                weight(int(number) if number.isdecimal() else number) if colon else None
            )
        except InvalidTask as error:
            raise ArgumentTypeError(str(error)) from None
        except ValueError as error:
            raise ArgumentTypeError(f"the weight of {name} must be {error}. It is {number!r}") from None
    return queues


def given_queues(value: str | Iterable[str]) -> dict[str, int | None]:
    """Do the same for a keyword argument of ``call_command``, which the parser does not read."""
    if isinstance(value, dict):
        return value
    return weighted_queues(value if isinstance(value, str) else ",".join(value)) if value else {}


def given_names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Do the same for queues that have no weights."""
    return queue_names(value if isinstance(value, str) else ",".join(value)) if value else ()


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for whole numbers that are at least ``least``."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise ArgumentTypeError(f"{number} is less than {least}")
        return number

    return read


def writable_path(text: str) -> str:
    """Return the absolute path of a file that can be written beside others."""
    path = Path(text).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written: it must be a file in a folder that exists")
    return str(path)


def check_one_process(given: dict[str, Any], queues: Mapping[str, int | None]) -> None:
    """Refuse the options of ``runqueueworker`` that cannot be used together with ``--one-process``."""
    for option, default in _NOT_FOR_ONE_PROCESS.items():
        if given[option.removeprefix("--").replace("-", "_")] not in default:
            raise ArgumentTypeError(
                _(
                    "%(option)s and --one-process cannot be used together. It runs one job at a time, in "
                    "this process."
                )
                % {"option": option}
            )
    if any(weight is not None for weight in queues.values()):
        raise ArgumentTypeError(_("--one-process has no weights: name the queues only, as in --queues a,b."))


#: With the values of those that are not given.
_NOT_FOR_ONE_PROCESS: dict[str, tuple[Any, ...]] = {
    "--processes": (1,), "--threads": (1, 4), "--async-slots": (None,), "--max-jobs": (None,),
    "--max-rss": (None,), "--grace": (None,), "--reload": (False,), "--alive-file": (None,),
}  # fmt: skip


def database_alias(text: str | None) -> str:
    """Check an alias of DATABASES. The default is the database of jobs that do not name one."""
    alias = default_backend().home() if text is None else text
    if alias not in connections.settings:
        known = ", ".join(sorted(connections.settings))
        raise ArgumentTypeError(f"{alias!r} is not in DATABASES. The aliases are {known}.")
    return alias
