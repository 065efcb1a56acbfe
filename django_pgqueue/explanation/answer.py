"""``why()``: why a job does not run, or what has become of it.

The reason comes from ``pgqueue_why`` (``sql/why_v1.sql``), which the page of a job, the command, the shell
and plain SQL ask alike. Here it gets its words (``words``) and what helps against it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils.translation import gettext as _

from .. import conf
from ..jobs.control import locate
from ..monitoring.workers import one_is_starting
from ..redaction import beginning, redact_text
from ..tasks.task_results import public_id
from .facts import plain
from .words import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..compat import TaskResult
    from ..models import Job

_SQL = "SELECT code, facts::text FROM pgqueue_why_v1(%s, %s, %s)"
_MESSAGE = "SELECT left(errors -> -1 ->> 'message', %s) FROM pgqueue_job WHERE id = %s"
_SHOWN = 500  # characters of the message of an error, as in sql/why_error_v1.sql
_READ = 10_000


@dataclass(frozen=True, slots=True)
class Reason:
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
    def fix(self) -> str:
        """What helps, often with a command or a call to copy; empty if there is nothing to do but to wait."""
        return fix(self.code, self.facts, self.job_id, self.database)

    def __str__(self) -> str:
        return self.text


def why(job: Job | int | str | TaskResult[Any, Any], /, *, using: str | None = None) -> Reason:
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
        if code == "no_worker":
            facts["starting"] = one_is_starting(alias)
        if _is_cut(facts.get("error")):
            cursor.execute(_MESSAGE, [_READ, pk])
            facts["error"]["message"] = (cursor.fetchone() or ("",))[0]
    return Reason(code, {**_redacted(code, facts), "database": alias}, pk, alias)


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


async def awhy(job: Job | int | str | TaskResult[Any, Any], /, *, using: str | None = None) -> Reason:
    """Like ``why()``, for async code."""
    return await sync_to_async(why)(job, using=using)


# ----------------------------------------------------------------------------
# What to do about the reasons of ``pgqueue_why``: a command to copy, with the words around it; a call if no
# command does it, or if a user asks in the shell of Python.

Facts = dict[str, Any]


def fix(code: str, facts: Facts, job: int, alias: str, *, in_shell: bool = False) -> str:
    """Return a sentence with what helps; empty if there is nothing to do but to wait.

    ``in_shell``: prefer calls to commands.
    """
    found = (_IN_SHELL.get(code) if in_shell else None) or FIXES.get(code)
    return found(facts, job, alias) if found else ""


def _named(job: int, alias: str) -> str:
    """Return a job as an argument of a function: its id, and the database if it is not the default one."""
    public = public_id(job, alias)
    return public if public.isdigit() else repr(public)


def _database(alias: str) -> str:
    return "" if alias == "default" else f" --database {quote(alias)}"


def _using(alias: str) -> str:
    return "" if alias == "default" else f", using={alias!r}"


def _command(name: str, job: int, alias: str) -> str:
    return f"manage.py pgqueue {name} {quote(public_id(job, alias))}"


def _run_again(facts: Facts, job: int, alias: str) -> str:
    return _("To run it again: %(call)s") % {"call": _command("retry", job, alias)}


def _run_again_in_shell(facts: Facts, job: int, alias: str) -> str:
    return _("To run it again: %(call)s") % {"call": f"retry({_named(job, alias)})"}


def _run_now(facts: Facts, job: int, alias: str) -> str:
    return _("To run it now: %(call)s") % {"call": _command("run-now", job, alias)}


def _run_expired(facts: Facts, job: int, alias: str) -> str:
    """A retry removes the expiry; to make it due does not."""
    return _("To run it now: %(call)s") % {"call": _command("retry", job, alias)}


def _run_now_in_shell(facts: Facts, job: int, alias: str) -> str:
    return _("To run it now: %(call)s") % {"call": f"retry({_named(job, alias)})"}


def _send(facts: Facts, job: int, alias: str) -> str:
    return _("To send the event: %(call)s") % {
        "call": f"send_event({_named(job, alias)}, {facts.get('step', '')!r})"
    }


def _first_parent(facts: Facts, state: str) -> Facts:
    parents: list[Facts] = facts.get("parents") or []
    return next((parent for parent in parents if parent["state"] == state), {})


def _retry_parent(facts: Facts, job: int, alias: str) -> str:
    parent = _first_parent(facts, "failed")
    if not parent:
        return ""
    command = (
        f"manage.py pgqueue retry --batch {parent['id']}{_database(alias)}"
        if parent["is_batch"]
        else _command("retry", parent["id"], alias)
    )
    return _("To retry what has failed: %(call)s") % {"call": command}


def _retry_parent_in_shell(facts: Facts, job: int, alias: str) -> str:
    parent = _first_parent(facts, "failed")
    if not parent:
        return ""
    batch = f"Batch.get({parent['id']}{_using(alias)}).retry_failed()"
    call = batch if parent["is_batch"] else f"retry({_named(parent['id'], alias)})"
    return _("To retry what has failed: %(call)s") % {"call": call}


def _close(facts: Facts, job: int, alias: str) -> str:
    parent = _first_parent(facts, "open")
    if not parent:
        return ""
    return _("When all of its jobs are added, close it: %(call)s") % {
        "call": f"Batch.get({parent['id']}{_using(alias)}).close()"
    }


def _why_parent(facts: Facts, job: int, alias: str) -> str:
    parents = [parent for parent in facts.get("parents") or [] if not parent["is_batch"]]
    return _why_other(parents[0]["id"], alias) if parents else ""


def _why_other(job: int, alias: str) -> str:
    return _("To see why that one is not finished: %(command)s") % {"command": _command("why", job, alias)}


def _why_first(facts: Facts, job: int, alias: str) -> str:
    return _why_other(facts["first"], alias) if facts.get("first") else ""


def _resume(facts: Facts, job: int, alias: str) -> str:
    kind = facts.get("kind")
    what = "--everything" if kind == "all" else f"--{kind} {quote(str(facts.get('name')))}"
    return _("To end the pause: %(command)s") % {
        "command": f"manage.py pgqueue resume {what}{_database(alias)}"
    }


def _raise_limit(facts: Facts, job: int, alias: str) -> str:
    call = f"set_limit({_target(facts['limit'])}, concurrency={facts['allowed'] + 1}{_using(alias)})"
    return _("It starts when another one ends. To let more run at once: %(call)s") % {"call": call}


def _target(limit: str) -> str:
    if limit == "*":
        return "everything=True"
    kind, is_queue, queue = limit.partition("queue:")
    return f"queue={queue!r}" if is_queue and not kind else f"name={limit!r}"


def _raise_rate(facts: Facts, job: int, alias: str) -> str:
    return _("It starts in its turn. A higher rate is set with set_limit(), or on the page of the limit.")


def _start_worker(facts: Facts, job: int, alias: str) -> str:
    if facts.get("starting"):
        return _("See the log of the worker that starts.")
    command = f"manage.py runqueueworker --queues {quote(str(facts.get('queue_name')))}{_database(alias)}"
    return _("Start a worker: %(command)s") % {"command": command}


def _any_worker(facts: Facts, job: int, alias: str) -> str:
    return _("This takes a worker that is alive: %(command)s") % {
        "command": f"manage.py runqueueworker{_database(alias)}"
    }


def _more_slots(facts: Facts, job: int, alias: str) -> str:
    return _("Start more workers or processes, or give long jobs a queue and workers of their own.")


def _same_code(facts: Facts, job: int, alias: str) -> str:
    return _("Restart the workers with the code and the settings of the process that enqueued it.")


def _let_go(facts: Facts, job: int, alias: str) -> str:
    call = f"SELECT pg_terminate_backend({facts['pid']})"
    return _("Commit that transaction, or end its session: %(call)s") % {"call": call}


def _earlier(facts: Facts, job: int, alias: str) -> str:
    call = f"edit({_named(job, alias)}, priority={min(100, (facts.get('priority') or 0) + 1)})"
    return _("To let it start before them: %(call)s") % {"call": call}


def _check_cancel(facts: Facts, job: int, alias: str) -> str:
    return _("A task that is not async stops only where it checks current_job().cancel_requested.")


def _commit(facts: Facts, job: int, alias: str) -> str:
    return _("Commit the transaction. In a TestCase, call run_jobs() of django_pgqueue.testing.")


FIXES: dict[str, Callable[[Facts, int, str], str]] = {
    "failed": _run_again,
    "cancelled": _run_again,
    "worker_lost": _any_worker,
    "cancel_requested": _check_cancel,
    "expired": _run_expired,
    "scheduled": _run_now,
    "retry": _run_now,
    "snoozed": _run_now,
    "put_back": _run_now,
    "event": _send,
    "after": _why_parent,
    "after_failed": _retry_parent,
    "after_open_batch": _close,
    "after_over": _any_worker,
    "paused": _resume,
    "pause_over": _any_worker,
    "limit": _raise_limit,
    "rate": _raise_rate,
    "no_worker": _start_worker,
    "busy": _more_slots,
    "unknown_task": _same_code,
    "locked": _let_go,
    "wait_queue": _why_first,
    "behind": _earlier,
    "uncommitted": _commit,
}
_IN_SHELL: dict[str, Callable[[Facts, int, str], str]] = {
    "failed": _run_again_in_shell,
    "cancelled": _run_again_in_shell,
    "expired": _run_now_in_shell,
    "scheduled": _run_now_in_shell,
    "retry": _run_now_in_shell,
    "snoozed": _run_now_in_shell,
    "put_back": _run_now_in_shell,
    "after_failed": _retry_parent_in_shell,
}
