"""``manage.py pgqueue cancel``: cancel jobs."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import OutputWrapper
from django.db.models import Q

from ...jobs.control import cancel
from ...models.job import Status
from .. import _changing

NAME = "cancel"
HELP = "Cancel jobs: those that wait end at once, and those that run are asked to stop"

_CHANGE = _changing.Change(
    "cancel",
    cancel,
    usual=(Status.PENDING, Status.RETRY, Status.BLOCKED, Status.RUNNING),
    possible=(Status.PENDING, Status.RETRY, Status.BLOCKED, Status.RUNNING),
    would=("would be cancelled, or asked to stop", "would be cancelled, or asked to stop"),
    does=("was cancelled, or asked to stop", "were cancelled, or asked to stop"),
    rule="Finished jobs, and those that were already asked to stop, cannot be cancelled.",
    or_else=" (a job that is cancelled may take along those that wait for it)",
    where=Q(cancel_requested_at__isnull=True),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add which jobs, and how to ask."""
    _changing.add_arguments(parser, _CHANGE)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Change them."""
    _changing.run(_CHANGE, options, stdout)
