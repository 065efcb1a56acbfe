"""The reasons of ``pgqueue_why`` in words: a function for each code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .due import DUE
from .facts import Facts, Reference, Sentence

if TYPE_CHECKING:
    from collections.abc import Callable


def sentence(code: str, facts: dict[str, Any]) -> Sentence:
    """Return why a job does not run, or what has become of it."""
    return CODES[code](Facts(facts))


def _unknown(facts: Facts) -> Sentence:
    return Sentence(_(
        "There is no job with this id. Either the transaction that made it has not committed or was rolled "
        "back, or the job is in another database, or it is finished and no longer kept."
    ))  # fmt: skip


def _done(facts: Facts) -> Sentence:
    return Sentence(_("It is done since %(at)s."), {"at": facts.moment("ended_at")})


def _failed(facts: Facts) -> Sentence:
    attempts = facts["attempts"] or 0
    text = ngettext(
        "It failed at %(at)s, after %(attempts)s attempt%(why)s.",
        "It failed at %(at)s, after %(attempts)s attempts%(why)s.",
        attempts,
    )
    words = facts.error() or facts.text("reason")
    return Sentence(
        text, {"at": facts.moment("ended_at"), "attempts": attempts, "why": f": {words}" if words else ""}
    )


def _cancelled(facts: Facts) -> Sentence:
    words = facts.text("reason") or (_("on request") if facts["asked_to_cancel_at"] else "")
    values = {"at": facts.moment("ended_at"), "why": f": {words}" if words else ""}
    return Sentence(_("It was cancelled at %(at)s%(why)s."), values)


def _running(facts: Facts) -> Sentence:
    return Sentence(_("It runs: %(details)s."), {"details": _how_far(facts)})


def _how_far(facts: Facts) -> list[Any]:
    """Return how far a running job is, as far as it has told."""
    parts: list[Any] = [_("attempt %(number)d") % {"number": facts["attempt"] or 0}]
    if facts["since"]:
        parts.append(_("for %(period)s") % {"period": facts.age("since")})
    parts.append(Sentence(_("on %(worker)s"), {"worker": _worker(facts)}))
    if facts["step"]:
        parts.append(_("at the step %(step)s") % {"step": repr(facts["step"])})
    if progress := facts["progress"]:
        done, total = (
            number_format(progress.get(name) or 0, force_grouping=True) for name in ("done", "total")
        )
        text = _("%(done)s of %(total)s done") if progress.get("total") else _("%(done)s done")
        note = f" ({progress['note']})" if progress.get("note") else ""
        parts.append(text % {"done": done, "total": total} + note)
    return parts


def _worker(facts: Facts) -> Reference:
    worker = facts["worker"] or {}
    name = ":".join(str(part) for part in (worker.get("host"), worker.get("pid")) if part)
    return Reference("worker", worker.get("id"), name or _("a worker that no longer exists"))


def _worker_lost(facts: Facts) -> Sentence:
    return Sentence(
        _("Its worker (%(worker)s) is lost: another worker puts the job back into its queue."),
        {"worker": _worker(facts)},
    )


def _cancel_requested(facts: Facts) -> Sentence:
    values = {"age": facts.age("asked_to_cancel_at"), "details": _how_far(facts)}
    return Sentence(_("It was asked to stop %(age)s ago, and still runs: %(details)s."), values)


def _due(facts: Facts) -> dict[str, Any]:
    return {"period": facts.until("due_at"), "at": facts.moment("due_at")}


def _scheduled(facts: Facts) -> Sentence:
    return Sentence(_("It is due in %(period)s, at %(at)s."), _due(facts))


def _retry(facts: Facts) -> Sentence:
    return Sentence(
        _("Attempt %(attempt)s failed: %(error)s. The next one is due in %(period)s, at %(at)s."),
        {"attempt": facts["attempts"], "error": facts.error(), **_due(facts)},
    )


def _snoozed(facts: Facts) -> Sentence:
    return Sentence(_("Its task has put it off: it is due in %(period)s, at %(at)s."), _due(facts))


def _put_back(facts: Facts) -> Sentence:
    return Sentence(
        _("It was put back: %(reason)s. It is due in %(period)s, at %(at)s."),
        {"reason": facts.text("reason").rstrip("."), **_due(facts)},
    )


def _sleeping(facts: Facts) -> Sentence:
    return Sentence(
        _("It sleeps at the step %(step)s. It goes on in %(period)s, at %(at)s."),
        {"step": repr(facts["step"]), **_due(facts)},
    )


def _event(facts: Facts) -> Sentence:
    step = repr(facts["step"])
    if not facts.has_end("due_at"):
        return Sentence(_("It waits for the event %(name)s."), {"name": step})
    return Sentence(
        _("It waits for the event %(name)s, for %(period)s more, until %(at)s."),
        {"name": step, **_due(facts)},
    )


def _unknown_task(facts: Facts) -> Sentence:
    return Sentence(
        _("The worker that took it does not know its task: %(reason)s. Workers try again every 30 seconds."),
        {"reason": facts.text("reason").rstrip(".")},
    )


def _expired(facts: Facts) -> Sentence:
    return Sentence(
        _("It expired at %(at)s, so it will not run. The next worker that comes to it cancels it."),
        {"at": facts.moment("expired_at")},
    )


def _after(facts: Facts) -> Sentence:
    return Sentence(_("It waits for %(parents)s."), _parents(facts))


def _after_failed(facts: Facts) -> Sentence:
    text = _("It waits for %(parents)s. It goes on when what has failed is retried and succeeds.")
    return Sentence(text, _parents(facts))


def _after_open_batch(facts: Facts) -> Sentence:
    text = _("It waits for %(parents)s. A batch that is open does not end: more jobs may be added to it.")
    return Sentence(text, _parents(facts))


def _after_over(facts: Facts) -> Sentence:
    return Sentence(
        _(
            "All that it waited for is finished. "
            "Maintenance, which a worker does every few seconds, lets it go."
        )
    )


def _parents(facts: Facts) -> dict[str, Any]:
    return {"parents": facts.jobs("parents", facts["count"])}


CODES: dict[str, Callable[[Facts], Sentence]] = {
    "unknown": _unknown,
    "done": _done,
    "failed": _failed,
    "cancelled": _cancelled,
    "running": _running,
    "worker_lost": _worker_lost,
    "cancel_requested": _cancel_requested,
    "expired": _expired,
    "scheduled": _scheduled,
    "retry": _retry,
    "snoozed": _snoozed,
    "put_back": _put_back,
    "sleeping": _sleeping,
    "event": _event,
    "after": _after,
    "after_failed": _after_failed,
    "after_open_batch": _after_open_batch,
    "after_over": _after_over,
    "unknown_task": _unknown_task,
    **DUE,
}
