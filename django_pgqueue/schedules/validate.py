"""What is wrong with a row that someone has entered, by field, for ``Schedule.clean()``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS

from .. import conf, validation
from ..compat import InvalidTask
from ..definition import find_task
from ..exceptions import UnknownTask
from ..payload import encode_arguments
from ..signatures import check_call
from .cron import check_jitter, timing_of, zone
from .policy import call_keys

__all__ = ["problems"]


def problems(row: Any) -> dict[str, list[str]]:
    """Return the problems of a ``Schedule``, each for the field that can correct it."""
    return {field: [text] for field, text in (_timing(row), _call(row), _queue(row)) if text}


def _timing(row: Any) -> tuple[str, str]:
    try:
        zone(row.timezone)
    except ValueError as error:
        return "timezone", str(error)
    try:
        timing = timing_of(row.cron, row.every, row.timezone)
    except ValueError as error:
        if (row.cron is None) == (row.every is None):
            return NON_FIELD_ERRORS, str(error)
        return "every" if row.cron is None else "cron", str(error)
    try:
        check_jitter(timing, row.jitter)
    except ValueError as error:
        return "jitter", str(error)
    return "", ""


def _call(row: Any) -> tuple[str, str]:
    if not isinstance(row.args, list):
        return "args", f"args must be a JSON list. It is {row.args!r}."
    if not isinstance(row.kwargs, dict):
        return "kwargs", f"kwargs must be a JSON object. It is {row.kwargs!r}."
    try:
        task = find_task(row.task_path)
    except UnknownTask as error:
        return "task_path", str(error)
    try:
        check_call(task, row.args, row.kwargs)
        call_keys(task, row.args, row.kwargs)
        encode_arguments(row.args, row.kwargs, conf.current().max_payload_bytes)
    except (TypeError, ValueError) as error:
        return "args", str(error)
    return "", ""


def _queue(row: Any) -> tuple[str, str]:
    if row.queue_name is not None:
        try:
            validation.queue_name(row.queue_name)
        except InvalidTask as error:
            return "queue_name", str(error)
    return "", ""
