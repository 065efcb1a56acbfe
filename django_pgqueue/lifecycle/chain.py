"""``chain()``: jobs that run one after another."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.db import transaction

from ..definition import BoundTask
from .calls import as_ours, call_options, in_memory
from .enqueue import enqueue_task

if TYPE_CHECKING:
    from ..links import IfFailed
    from ..models import Job

__all__ = ["achain", "chain"]


def chain(*calls: BoundTask, if_failed: IfFailed = "hold") -> list[Job]:
    """Enqueue calls (``task.bind(...)``) of which each waits for the one before, all or none.

    Return their jobs in this order. ``if_failed``: what a job does if the one before it has failed: "hold"
    waits for its retry, "cancel" cancels the rest of the chain, and "run" continues with it. A call that has
    an `after` of its own waits for that, too.

    Raise the same exceptions as ``enqueue()``, and ``TypeError`` for something that is not a call.
    """
    if not calls:
        raise TypeError("chain() takes calls such as task.bind(1), and got none.")
    for call in calls:
        if not isinstance(call, BoundTask):
            raise TypeError(
                f"chain() takes calls such as task.bind(1), not {call!r:.200}. "
                "For a list of calls, write chain(*calls)."
            )
    options = call_options(as_ours(calls[0].task))
    jobs: list[Job] = []
    with nullcontext() if in_memory(options.keeper) else transaction.atomic(using=options.alias):
        for call in calls:
            task = as_ours(call.task)
            if jobs:
                own = task.links.after if task.links is not None else ()
                task = task.using(after=[*own, jobs[-1]], if_failed=if_failed)
            jobs.append(enqueue_task(task, call.args, call.kwargs))
    return jobs


async def achain(*calls: BoundTask, if_failed: IfFailed = "hold") -> list[Job]:
    """Like ``chain()``, for async code."""
    return await sync_to_async(chain)(*calls, if_failed=if_failed)
