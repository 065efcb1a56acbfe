"""``manage.py pgqueue retry``: run jobs again, now."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import OutputWrapper

from ...jobs.control import retry
from ...models.job import Status
from .. import _changing

NAME = "retry"
HELP = "Run jobs again, now, with a new budget of attempts"

_CHANGE = _changing.Change(
    "retry",
    partial(retry, done=True),  # the command asks before it runs a done job again
    usual=(Status.FAILED,),
    possible=(Status.FAILED, Status.CANCELLED, Status.DONE, Status.RETRY, Status.PENDING),
    would=("would run again", "would run again"),
    does=("runs again", "run again"),
    rule="Running and blocked jobs cannot be retried, nor a job whose unique key another job has.",
    or_else=", or another job has the same unique key",
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add which jobs, and how to ask."""
    _changing.add_arguments(parser, _CHANGE)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Change them."""
    _changing.run(_CHANGE, options, stdout)
