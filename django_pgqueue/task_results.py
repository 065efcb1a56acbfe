"""`QueueTaskResult`: the TaskResult of Django that can wait for its job.

It has no fields of its own, so that it is equal, copied and pickled like Django's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .compat import GenericResult
from .exceptions import WrongBackend
from .routing import is_ours, resolve

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Self

    from .routing import QueueBackend

__all__ = ["QueueTaskResult"]

P = ParamSpec("P")
R = TypeVar("R")


class QueueTaskResult(GenericResult[P, R]):
    """A `TaskResult` of this package's backend, with two more methods."""

    __slots__ = ()

    def join(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the job is over, refresh this result, and return it. See `Job.join`.

        Raise TimeoutError if it is not over after `timeout` (seconds or a timedelta; None: wait forever), and
        TaskResultDoesNotExist if there is no such job.
        """
        self._backend().join(self, timeout)
        return self

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like `join`, for async code."""
        await self._backend().ajoin(self, timeout)
        return self

    def _backend(self) -> QueueBackend:
        backend = resolve(self.backend)
        if not is_ours(backend):
            raise WrongBackend(
                f"The result {self.id!r} cannot wait for its job: TASKS[{self.backend!r}] is not a backend "
                "of django_pgqueue."
            )
        return backend
