"""``DjangoMadeTask``: what Django's own ``@task`` makes if its backend is ours.

From Django 6.1 on, and in ``django-tasks``, the decorator passes the options that it does not know to this
class, so a task may have a policy there as well. Django 6.0 refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .definition import Task

if TYPE_CHECKING:
    from typing import Self

__all__ = ["DjangoMadeTask"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoMadeTask(Task[P, R]):
    """A task made by Django's own ``@task`` on our backend, which follows Django's contract.

    It has one attempt and is validated against its backend when it is declared (Django's decorator has read
    TASKS by then).
    """

    max_attempts: int | None = 1

    def __new__(cls, **options: Any) -> Self:
        """Raise TypeError for an option that tasks do not have."""
        _check_names(options, [each.name for each in fields(cls)])  # a subclass may have more
        return object.__new__(cls)

    def __post_init__(self) -> None:
        Task.__post_init__(self)  # a slotted dataclass has no zero-argument super() before Python 3.14
        self._validate_for_backend()


def _check_names(given: Iterable[str], names: Iterable[str]) -> None:
    known = [name for name in names if not name.startswith("_") and name != "links"]
    for name in given:
        if name not in known:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The options are {', '.join(sorted(known))}."
            raise TypeError(f"task() got an unexpected keyword argument {name!r}. {hint}")
