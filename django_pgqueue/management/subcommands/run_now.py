"""``manage.py pgqueue run-now``: run jobs now that wait for a later time."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import OutputWrapper
from django.db.models import Q
from django.db.models.functions import Now

from ...jobs.control import run_now
from ...models.job import Status
from .. import _changing

NAME = "run-now"
HELP = "Run jobs now that wait for a later time, and change nothing else"

_CHANGE = _changing.Change(
    "run-now",
    run_now,
    usual=(Status.PENDING, Status.RETRY),
    possible=(Status.PENDING, Status.RETRY),
    would=("would be due now", "would be due now"),
    does=("is due now", "are due now"),
    rule="Only jobs that wait for a later time can be run now.",
    where=Q(run_after__gt=Now()),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add which jobs, and how to ask."""
    _changing.add_arguments(parser, _CHANGE)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Change them."""
    _changing.run(_CHANGE, options, stdout)
