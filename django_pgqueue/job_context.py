"""``JobContext``: what a task with ``takes_context=True`` receives, Django's ``TaskContext`` with the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .compat import TaskContext

if TYPE_CHECKING:
    from .models.current import CurrentJob

    Context = TaskContext[Any, Any]
else:
    Context = TaskContext

__all__ = ["JobContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(Context):  # type: ignore[misc]  # the stubs do not say that Django's is frozen
    """The first argument of a task with ``takes_context=True``.

    Besides Django's ``attempt`` and ``task_result`` it has the ``job``, which is that of ``current_job()``.
    """

    job: CurrentJob
    """The job that is running."""
