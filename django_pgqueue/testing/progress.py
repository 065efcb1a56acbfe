"""``reported_progress``: what jobs report in a block, however they run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ..progress import Progress
from ..worker.executor.progress import JobProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["reported_progress"]


@contextmanager
def reported_progress() -> Iterator[list[Progress]]:
    """Collect what jobs report in the block with ``current_job().progress()`` and ``track()``, in order.

    They may run in ``call_task()``, ``run_jobs()``, immediate mode, ``fake_job()``, or on a thread. Each item
    has ``done``, ``total`` and ``note``, and is equal to a tuple of these.
    """
    reported: list[Progress] = []
    tell = JobProgress.tell

    def note_and_tell(job: JobProgress, done: Any, total: Any = None, note: Any = "") -> None:
        tell(job, done, total, note)
        reported.append(job.last or Progress(0))

    with patch.object(JobProgress, "tell", note_and_tell):
        yield reported
