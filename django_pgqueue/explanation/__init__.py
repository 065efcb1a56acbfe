"""``why()``: why a job does not run, or what has become of it.

The reason comes from ``pgqueue_why`` (``sql/why``), which the page of a job, the command, the shell
and plain SQL ask alike. Here it gets its words (``words``) and what helps against it. ``schedules`` has the
words of schedules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from .. import conf
from ..compat import TaskResult, for_async
from ..models import Job
from ..models.changes import locate
from ..monitoring.workers import one_is_starting
from ..postgres import fetch_rows
from ..redaction import beginning, redact_text
from ..tasks.links import public_id
from .words import plain, sentence

__all__ = ["Reason", "awhy", "fix", "why"]

_SQL = "SELECT code, facts::text FROM pgqueue_why(%s, %s, %s)"
_MESSAGE = "SELECT left(errors -> -1 ->> 'message', %s) FROM pgqueue_job WHERE id = %s"
_SHOWN = 500  # characters of the message of an error, as in pgqueue_why
_READ = 10_000


@dataclass(frozen=True, slots=True)
class Reason:
    """The one reason why a job does not run, or its state. ``str()`` gives `text`."""

    code: str
    """The reason as a word, such as "paused" or "no_worker"."""
    facts: dict[str, Any]
    """The known facts, as JSON. Times are texts in ISO 8601."""
    job_id: int
    database: str

    @property
    def text(self) -> str:
        """The reason in one or two sentences, in the active language and time zone."""
        return plain(sentence(self.code, self.facts))

    @property
    def fix(self) -> str:
        """The remedy, often with a command or a call to copy; empty if there is nothing to do but to wait."""
        return fix(self.code, self.facts, self.job_id, self.database)

    def __str__(self) -> str:
        return self.text


def why(job: Job | int | str | TaskResult[Any, Any], /, *, using: str | None = None) -> Reason:
    """Return why a job (a ``Job``, an id, a ``TaskResult``) does not run, or its state.

    It is the first reason for which a worker would refuse the job now, so it has to be fixed first.
    ``using``: the alias of the database, for an id without one. Nothing is changed. Texts in the facts are
    redacted, as the setting ``REDACT`` says.
    """
    alias, pk = locate(job)
    alias = using or alias
    settings = conf.current()
    [(code, text)] = fetch_rows(alias, _SQL, [pk, settings.heartbeat, settings.lease])
    facts = json.loads(text)
    if code == "no_worker":
        facts["starting"] = one_is_starting(alias)
    error = facts.get("error") or {}
    if len(error.get("message") or "") >= _SHOWN and not settings.redact.are_names:
        # What a pattern is to find may reach beyond what was read.
        error["message"] = "".join(each or "" for (each,) in fetch_rows(alias, _MESSAGE, [_READ, pk]))
    # What a task or its errors say may contain arguments.
    path = facts.get("task_path", "")
    for part, name in ((facts, "reason"), (facts.get("progress"), "note")):
        if part and part.get(name) and code != "paused":  # whose reason is for people to read
            part[name] = redact_text(part[name], path)
    if error.get("message"):
        error["message"] = beginning(error["message"], _READ, path, _SHOWN)
    return Reason(code, {**facts, "database": alias}, pk, alias)


awhy = for_async(why)


class Cure(NamedTuple):
    """What helps against a reason. What a name in a template stands for is in `_values`."""

    text: Any
    """A sentence. ``%(call)s`` is the command or the call."""
    command: str = ""
    in_shell: str = ""
    """A call that does the same, for a user of the shell of Python."""


_AGAIN = Cure(_("To run it again: %(call)s"), "manage.py pgqueue retry {job}", "retry({name})")
_NOW = Cure(_("To run it now: %(call)s"), "manage.py pgqueue run-now {job}", "run_now({name})")
_WORKER = Cure(_("This takes a worker that is alive: %(command)s"), "manage.py runqueueworker{database}")
_FAILED = _("To retry what has failed: %(call)s")
_OTHER = _("To see why that one is not finished: %(command)s")

CURES = {
    "failed": _AGAIN,
    "cancelled": _AGAIN,
    "worker_lost": _WORKER,
    "cancel_requested": Cure(
        _(
            "A task that is not async stops only where it checks current_job().cancel_requested. If it "
            "hangs, replace its process: after the grace period, the process ends together with the task."
        )
    ),
    # A retry removes the expiry; to make it due does not.
    "expired": _AGAIN._replace(text=_NOW.text),
    "scheduled": _NOW,
    "retry": _NOW,
    "snoozed": _NOW,
    "put_back": _NOW,
    "event": Cure(_("To send the event: %(call)s"), "send_event({name}, {step!r})"),
    "after": Cure(_OTHER, "manage.py pgqueue why {parent}"),
    "after_failed": Cure(_FAILED, "manage.py pgqueue retry {failed}", "retry({failed_name})"),
    "after_open_batch": Cure(
        _("When all of its jobs are added, close it: %(call)s"), "Batch.get({open_batch}{using}).close()"
    ),
    "after_over": _WORKER,
    "paused": Cure(_("To end the pause: %(command)s"), "manage.py pgqueue resume --{pause}{database}"),
    "pause_over": _WORKER,
    "limit": Cure(
        _("It starts when another one ends. To let more run at once: %(call)s"),
        "set_limit({limit}, concurrency={more}{using})",
    ),
    "rate": Cure(
        _("It starts in its turn. A higher rate is set with set_limit(), or on the page of the limit.")
    ),
    "no_worker": Cure(_("See the log of the worker that starts."), "{starting}"),
    "busy": Cure(_("Start more workers or processes, or give long jobs a queue and workers of their own.")),
    "unknown_task": Cure(
        _("Restart the workers with the code and the settings of the process that enqueued it.")
    ),
    "locked": Cure(
        _("Commit that transaction, or end its session: %(call)s"), "SELECT pg_terminate_backend({pid})"
    ),
    "wait_queue": Cure(_OTHER, "manage.py pgqueue why {first}"),
    "behind": Cure(_("To let it start before them: %(call)s"), "edit({name}, priority={higher_priority})"),
    "uncommitted": Cure(
        _("Commit the transaction. In a TestCase, call run_jobs() of django_pgqueue.testing.")
    ),
}
#: What helps if the facts do not have all values of the first template.
OTHERWISE = {
    "after_failed": Cure(
        _FAILED,
        "manage.py pgqueue retry --batch {failed_batch}{database}",
        "Batch.get({failed_batch}{using}).retry_failed()",
    ),
    "no_worker": Cure(
        _("Start a worker: %(command)s"), "manage.py runqueueworker --queues {queue}{database}"
    ),
}


def fix(code: str, facts: dict[str, Any], job: int, alias: str, *, in_shell: bool = False) -> str:
    """Return a sentence with what helps, if not only waiting does. ``in_shell``: prefer calls to commands."""
    values = _values(facts, job, alias)
    for cure in filter(None, (CURES.get(code), OTHERWISE.get(code))):
        try:
            call = ((in_shell and cure.in_shell) or cure.command).format(**values)
        except KeyError:
            continue
        return str(cure.text) % {"call": call, "command": call}
    return ""


def _values(facts: dict[str, Any], job: int, alias: str) -> dict[str, Any]:
    """Return what the names in the templates stand for. What the facts do not have is left out."""

    def argument(pk: int) -> str:
        return quote(public_id(pk, alias))

    def name(pk: int) -> str:
        public = public_id(pk, alias)
        return public if public.isdigit() else repr(public)

    is_default = alias == "default"
    values: dict[str, Any] = {
        "job": argument(job),
        "name": name(job),
        "database": "" if is_default else f" --database {quote(alias)}",
        "using": "" if is_default else f", using={alias!r}",
        "queue": quote(str(facts.get("queue_name"))),
        "step": facts.get("step", ""),
        "pid": facts.get("pid"),
        "higher_priority": min(100, (facts.get("priority") or 0) + 1),
    }
    for parent in reversed(facts.get("parents") or []):  # the first one counts
        state = parent["state"]
        if parent["is_batch"]:
            values[f"{state}_batch"] = parent["id"]
        else:
            values["parent"] = values[state] = argument(parent["id"])
            values[f"{state}_name"] = name(parent["id"])
    if facts.get("first"):
        values["first"] = argument(facts["first"])
    if facts.get("starting"):
        values["starting"] = ""
    if kind := facts.get("kind"):
        # Only some users may see the value of an argument.
        target = "TEXT" if kind == "argument" else quote(str(facts.get("name")))
        values["pause"] = "everything" if kind == "all" else f"{kind.replace('_', '-')} {target}"
    if limit := facts.get("limit"):
        kind, is_queue, queue = limit.partition("queue:")
        target = f"queue={queue!r}" if is_queue and not kind else f"name={limit!r}"
        values["limit"] = "everything=True" if limit == "*" else target
        values["more"] = facts["allowed"] + 1 if "allowed" in facts else None
    return values
