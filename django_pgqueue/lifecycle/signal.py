"""Send a signal to a job that waits for it (``current_job().wait_for``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError, connections

from .. import conf
from ..exceptions import JobIsOver
from ..payload import encode_result
from ..step_rules import step_name
from .control import locate

if TYPE_CHECKING:
    from ..compat import TaskResult
    from ..models import Job

__all__ = ["asignal", "signal"]

_SIGNAL_SQL = "SELECT pgqueue_signal_v1(%s, %s, %s::jsonb)"
_NO_SUCH_JOB = "23Q01"


def signal(job: Job | int | str | TaskResult[Any, Any], name: str, value: Any = None, /) -> bool:
    """Send the signal ``name`` to a job (a ``Job``, an id, a ``TaskResult``), with a ``value`` (JSON).

    The job may wait for it already, or later. The signal is part of the transaction of its database. Return
    False if the job has a signal with this name already, or has stopped waiting for it.

    Raise ``JobIsOver`` if the job is over or does not exist, ``PayloadError`` if the value cannot be stored
    as JSON, and ``TypeError`` or ``ValueError`` for a bad name.
    """
    alias, pk = locate(job)
    text = encode_result(value, conf.current().max_payload_bytes, "value")
    parameters: list[Any] = [pk, step_name("signal(job, name)", name), text]
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(_SIGNAL_SQL, parameters)
            received: bool = cursor.fetchone()[0]
    except IntegrityError as error:
        if getattr(error.__cause__, "sqlstate", None) != _NO_SUCH_JOB:
            raise
        raise JobIsOver(
            f"Job {pk} cannot receive the signal {name!r}: it is over, or there is no such job."
        ) from error
    return received


async def asignal(job: Job | int | str | TaskResult[Any, Any], name: str, value: Any = None, /) -> bool:
    """Like ``signal()``, for async code."""
    return await sync_to_async(signal)(job, name, value)
