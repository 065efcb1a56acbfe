"""``explain()``: why a job does not run, or what has become of it.

The reason comes from ``pgqueue_why`` (``sql/why_v1.sql``), which the page of a job, the command, the shell
and plain SQL ask alike. Here it gets its words (``words``) and what helps against it (``cures``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from .. import conf
from ..lifecycle.control import locate
from ..redaction import beginning, redact_text
from .cures import cure
from .parts import plain
from .words import sentence

if TYPE_CHECKING:
    from ..compat import TaskResult
    from ..models import Job

__all__ = ["Why", "aexplain", "explain"]

_SQL = "SELECT code, facts::text FROM pgqueue_why_v1(%s, %s, %s)"
_MESSAGE = "SELECT left(errors -> -1 ->> 'message', %s) FROM pgqueue_job WHERE id = %s"
_SHOWN = 500  # characters of the message of an error, as in sql/why_error_v1.sql
_READ = 10_000


@dataclass(frozen=True, slots=True)
class Why:
    """The one reason why a job does not run, or what has become of it. ``str()`` gives `text`."""

    code: str
    """The reason as a word, such as "paused" or "no_worker"."""
    facts: dict[str, Any]
    """What is known about it, as JSON. Times are texts in ISO 8601."""
    job_id: int
    database: str

    @property
    def text(self) -> str:
        """The reason in one or two sentences, in the active language and time zone."""
        return plain(sentence(self.code, self.facts))

    @property
    def cure(self) -> str:
        """What helps, often with a command or a call to copy; empty if there is nothing to do but to wait."""
        return cure(self.code, self.facts, self.job_id, self.database)

    def __str__(self) -> str:
        return self.text


def explain(job: Job | int | str | TaskResult[Any, Any], /, *, using: str | None = None) -> Why:
    """Return why a job (a ``Job``, an id, a ``TaskResult``) does not run, or what has become of it.

    It is the first reason for which a worker would refuse the job now, so what it names has to be cured
    first. ``using``: the alias of the database, for an id without one. Nothing is changed. Texts in the facts
    are redacted, as the setting ``REDACT`` says.
    """
    alias, pk = locate(job)
    alias = using or alias
    settings = conf.current()
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL, [pk, settings.heartbeat, settings.lease])
        code, text = cursor.fetchone()
        facts = json.loads(text)
        if _is_cut(facts.get("error")):
            cursor.execute(_MESSAGE, [_READ, pk])
            facts["error"]["message"] = (cursor.fetchone() or ("",))[0]
    return Why(code, {**_redacted(code, facts), "database": alias}, pk, alias)


def _is_cut(error: dict[str, Any] | None) -> bool:
    """Return whether what a pattern is to find may reach beyond what was read of the message."""
    return bool(error and len(error.get("message") or "") >= _SHOWN and not conf.current().redact.are_names)


def _redacted(code: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts as they may be shown: what a task or its errors say may contain arguments."""
    path = facts.get("task_path", "")
    for part, name in ((facts, "reason"), (facts.get("progress"), "note")):
        if part and part.get(name) and code != "paused":  # whose reason is for people to read
            part[name] = redact_text(part[name], path)
    if (error := facts.get("error")) and error.get("message"):
        error["message"] = beginning(error["message"], _READ, path, _SHOWN)
    return facts


async def aexplain(job: Job | int | str | TaskResult[Any, Any], /, *, using: str | None = None) -> Why:
    """Like ``explain()``, for async code."""
    return await sync_to_async(explain)(job, using=using)
