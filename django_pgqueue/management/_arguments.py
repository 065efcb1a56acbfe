"""Types of command line arguments: what they accept, and what they say when they do not."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from django.db import connections

from ..compat import InvalidTask
from ..routing import default_backend
from ..validation import queue_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_least", "database_alias", "queue_names"]


def queue_names(text: str) -> tuple[str, ...]:
    """``mail,default`` as a tuple without repetitions."""
    names = [name.strip() for name in text.split(",")]
    try:
        return tuple(dict.fromkeys(queue_name(name) for name in names))
    except InvalidTask as error:
        raise ArgumentTypeError(str(error)) from None


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not too small."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise ArgumentTypeError(f"{number} is less than {least}")
        return number

    return read


def database_alias(text: str | None) -> str:
    """An alias of DATABASES; without one, where jobs go that name none."""
    if text is None:
        return default_backend().home()
    if text not in connections.settings:
        raise ArgumentTypeError(
            f"{text!r} is not in DATABASES: there are {', '.join(sorted(connections.settings))}"
        )
    return text
