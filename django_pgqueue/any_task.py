"""``AnyTask``: what the functions of this package take as a task."""

from __future__ import annotations

from typing import ParamSpec, Protocol, TypeVar

__all__ = ["AnyTask"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class AnyTask(Protocol[P, R_co]):
    """What `enqueue` takes: a task of this package, or one made by Django's own decorator."""

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Declare the arguments and the result of the task."""
