"""The reasons of ``pgqueue_why`` in words: a text or a function for each code.

A ``Sentence`` is a translated text with named places, so that a page can make links of the ids in it. What
stands there is a string, a moment, a reference to something that may have a page, another sentence, or a list
of these.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from ..formatting import date_time, number, period, rate
from ..monitoring.depth import capped

MOST_COUNTED = 1000
A_LIFETIME = timedelta(days=50 * 365)  # what waits for an event at any time is due in almost a century


class Reference(NamedTuple):
    """Something that may have a page: a job, a batch, a worker, a limit."""

    kind: str
    key: Any
    text: str


class Sentence(NamedTuple):
    """A translated text, and what stands at its places."""

    text: str
    values: dict[str, Any] = {}


def plain(part: Any) -> str:
    """Return a part as text."""
    if isinstance(part, Sentence):
        return part.text % {name: plain(value) for name, value in part.values.items()}
    if isinstance(part, datetime):
        return date_time(part)
    if isinstance(part, Reference):
        return part.text
    if isinstance(part, list):
        return ", ".join(plain(each) for each in part)
    return "" if part is None else str(part)


class Facts(dict[str, Any]):
    """The facts of one reason. What is missing in them is None."""

    def __missing__(self, name: str) -> None:
        return None

    def at(self, name: str) -> datetime | None:
        """Return a time; None if there is none."""
        return parse_datetime(self[name]) if self[name] else None

    def between(self, begin: str, end: str = "asked_at") -> str:
        """Return how long it is from one time to another."""
        first, last = self.at(begin), self.at(end)
        return period(last - first) if first and last else ""

    def job(self, found: dict[str, Any]) -> Sentence:
        """Return a job or a batch of the facts with what is known about it."""
        known = [found.get("name") or found.get("task_path"), found.get("state")]
        if found.get("since"):
            age = Facts(found, asked_at=self["asked_at"]).between("since")
            known.append(gettext("for %(period)s") % {"period": age})
        details = ", ".join(filter(None, known))
        values = {"job": reference(found["id"], is_batch=bool(found.get("is_batch"))), "details": details}
        return Sentence(gettext("%(job)s (%(details)s)") if details else "%(job)s", values)

    def jobs(self, name: str, total: int | None = None) -> list[Any]:
        """Return those jobs of the facts, and how many more there are."""
        found: list[Any] = [self.job(each) for each in self[name] or []]
        if (more := (total or 0) - len(found)) > 0:
            found.append(ngettext("%(count)s more", "%(count)s more", more) % {"count": count(more)})
        return found

    def error(self) -> str:
        """Return the last error in words."""
        error = self["error"]
        if not error:
            return ""
        words = f"{str(error.get('class', '')).removeprefix('builtins.')}: {error.get('message', '')}"
        if not error.get("step"):
            return words
        return gettext("%(error)s (in the step %(step)s)") % {"error": words, "step": repr(error["step"])}


def reference(key: int, *, is_batch: bool = False) -> Reference:
    """Return a job or a batch, by its id."""
    text = gettext("batch %(id)s") if is_batch else gettext("job %(id)s")
    return Reference("batch" if is_batch else "job", key, text % {"id": key})


def count(found: int) -> str:
    """Return a number that was counted up to a limit."""
    return capped(found, MOST_COUNTED)


#: The reasons that are one sentence.
_SENTENCES: dict[str, Any] = {
    "unknown": _(
        "There is no job with this id. Either the transaction that made it has not committed or was "
        "rolled back, or the job is in another database, or it is finished and no longer kept."
    ),
    "done": _("It was done at %(at)s."),
    "cancelled": _("It was cancelled at %(at)s%(why)s."),
    "running": _("It runs: %(details)s."),
    "worker_lost": _("Its worker (%(worker)s) is lost: another worker puts the job back into its queue."),
    "cancel_requested": _("It was asked to stop %(age)s ago, and still runs: %(details)s."),
    "expired": _("It expired at %(at)s, so it will not run. The next worker that comes to it cancels it."),
    "scheduled": _("It is due in %(period)s, at %(at)s."),
    "retry": _("Attempt %(attempt)s failed: %(error)s. The next one is due in %(period)s, at %(at)s."),
    "snoozed": _("Its task has put it off: it is due in %(period)s, at %(at)s."),
    "put_back": _("It was put back: %(reason)s. It is due in %(period)s, at %(at)s."),
    "sleeping": _("It sleeps at the step %(step)s. It goes on in %(period)s, at %(at)s."),
    "after": _("It waits for %(parents)s."),
    "after_failed": _("It waits for %(parents)s. It goes on when what has failed is retried and succeeds."),
    "after_open_batch": _(
        "It waits for %(parents)s. A batch that is open does not end: more jobs may be added to it."
    ),
    "after_over": _(
        "All that it waited for is finished. Maintenance, which a worker does every few seconds, lets it go."
    ),
    "limit": _("The limit %(limit)s is full: %(running)s of %(allowed)s jobs run (%(holders)s).%(more)s"),
    "rate": _("The rate %(limit)s%(rate)s is used up: the next start is in %(period)s, at %(at)s.%(more)s"),
    "wait_queue": _(
        "It is in the wait queue of its limit key %(key)s, in which %(first)s is the first.%(more)s"
    ),
    "unknown_task": _(
        "The worker that took it does not know its task: %(reason)s. Workers try again every 30 seconds."
    ),
    "pause_over": _("The pause of its task has ended. A worker lets it go in a moment."),
    "blocked": _("It is blocked: %(reason)s."),
    "uncommitted": _("The transaction that asks has not committed the job, so no worker can see it yet."),
    "ready": _("Nothing holds it: it has been due for %(age)s, and should start within a moment."),
}
#: The fact with the time of a reason, if it is not "due_at".
_TIMES = {
    "done": "ended_at",
    "cancelled": "ended_at",
    "cancel_requested": "asked_to_cancel_at",
    "expired": "expired_at",
    "rate": "next_start",
}


def sentence(code: str, given: dict[str, Any]) -> Sentence:
    """Return why a job does not run, or what has become of it. A job of the relay says where its call is."""
    facts = Facts(given)
    if relay := facts["relay"]:
        where = _("Its call is the job %(job)s now.") if "job" in relay else _("Its call goes to %(to)s.")
        if code == "no_worker":
            where = _("Its call does not arrive in %(to)s before a worker here serves this queue.")
        parts = {"why": sentence(code, {**given, "relay": None}), "where": Sentence(str(where), relay)}
        return Sentence("%(why)s %(where)s", parts)
    if code in _FUNCTIONS:
        return _FUNCTIONS[code](facts)
    text, time = str(_SENTENCES[code]), _TIMES.get(code, "due_at")
    why = facts["reason"] or (gettext("on request") if facts["asked_to_cancel_at"] else "")
    starts = rate(facts["rate"], timedelta(seconds=facts["per"])) if facts["rate"] else ""
    values = {
        "at": facts.at(time),
        "age": facts.between(time),
        "period": facts.between("asked_at", time),
        "attempt": facts["attempts"],
        "error": facts.error(),
        "reason": (facts["reason"] or "").rstrip("."),
        "step": repr(facts["step"]),
        "worker": _worker(facts),
        "details": _how_far(facts),
        "parents": facts.jobs("parents", facts["count"]),
        "why": f": {why}" if why else "",
        # A key without a limit of its own has the one of all such keys: one job at once.
        "limit": Reference(
            "limit", facts["limit"] if facts["is_set"] else None, facts["key"] or facts["limit"]
        ),
        "rate": f" ({starts})" if starts else "",
        "running": number(facts["running"] or 0),
        "allowed": number(facts["allowed"] or 0),
        "holders": facts.jobs("holders", facts["running"]),
        "key": facts["key"],
        "first": reference(facts["first"] or 0),
        "more": _in_line(facts["ahead"] if code == "wait_queue" else facts["place"]),
    }
    return Sentence(text, {name: value for name, value in values.items() if f"%({name})s" in text})


def _failed(facts: Facts) -> Sentence:
    attempts = facts["attempts"] or 0
    text = ngettext(
        "It failed at %(at)s, after %(attempts)s attempt%(why)s.",
        "It failed at %(at)s, after %(attempts)s attempts%(why)s.",
        attempts,
    )
    words = facts.error() or facts["reason"]
    why = f": {words}" if words else ""
    return Sentence(text, {"at": facts.at("ended_at"), "attempts": attempts, "why": why})


def _how_far(facts: Facts) -> list[Any]:
    """Return how far a running job is, as far as it has reported."""
    parts: list[Any] = [gettext("attempt %(number)d") % {"number": facts["attempt"] or 0}]
    if facts["since"]:
        parts.append(gettext("for %(period)s") % {"period": facts.between("since")})
    parts.append(Sentence(gettext("on %(worker)s"), {"worker": _worker(facts)}))
    if facts["step"]:
        parts.append(gettext("at the step %(step)s") % {"step": repr(facts["step"])})
    if progress := facts["progress"]:
        done, total = (number(progress.get(name) or 0) for name in ("done", "total"))
        text = gettext("%(done)s of %(total)s done") if progress.get("total") else gettext("%(done)s done")
        note = f" ({progress['note']})" if progress.get("note") else ""
        parts.append(text % {"done": done, "total": total} + note)
    return parts


def _worker(facts: Facts) -> Reference:
    worker = facts["worker"] or {}
    name = ":".join(str(part) for part in (worker.get("host"), worker.get("pid")) if part)
    return Reference("worker", worker.get("id"), name or gettext("a worker that no longer exists"))


def _event(facts: Facts) -> Sentence:
    step, end, now = repr(facts["step"]), facts.at("due_at"), facts.at("asked_at")
    if end is None or now is None or end - now >= A_LIFETIME:
        return Sentence(gettext("It waits for the event %(name)s."), {"name": step})
    return Sentence(
        gettext("It waits for the event %(name)s, for %(period)s more, until %(at)s."),
        {"name": step, "period": facts.between("asked_at", "due_at"), "at": facts.at("due_at")},
    )


def _paused(facts: Facts) -> Sentence:
    text = {
        "queue": gettext("The queue %(name)s is paused: %(details)s."),
        "task": gettext("The task %(name)s is paused: %(details)s."),
        "group": gettext("The group %(name)s is paused: %(details)s."),
        "limit_key": gettext("The limit key %(name)s is paused: %(details)s."),
        "argument": gettext("Jobs of this task with its value of %(name)s are paused: %(details)s."),
    }.get(facts["kind"], gettext("Everything is paused: %(details)s."))
    details: list[Any] = [Sentence(gettext("since %(at)s"), {"at": facts.at("since")})]
    if facts["until"]:
        details.append(Sentence(gettext("until %(at)s"), {"at": facts.at("until")}))
    if facts["author"]:
        details.append(gettext("by %(author)s") % {"author": facts["author"]})
    if facts["reason"]:
        details.append(gettext("with the reason “%(reason)s”") % {"reason": facts["reason"]})
    name = facts["name"] or ""
    if facts["kind"] == "argument":  # only some users may see its value
        name = name.partition("=")[0].partition(" ")[2]
    return Sentence(text, {"name": name, "details": details})


def _in_line(place: int | None) -> str:
    if place is None:
        return ""
    if not place:
        return " " + gettext("It is the next one in the wait queue.")
    text = ngettext(
        "%(count)s job of its key is before it.", "%(count)s jobs of its key are before it.", place
    )
    return " " + text % {"count": count(place)}


def _no_worker(facts: Facts) -> Sentence:
    if facts["ending"]:
        text = gettext("The workers that serve the queue %(queue)s are ending.")
    elif facts["silent"]:
        text = gettext("The workers that serve the queue %(queue)s send no heartbeats.")
    elif facts["starting"]:
        text = gettext(
            "No worker serves the queue %(queue)s in the database %(database)s yet: one is starting, but "
            "none of its processes has registered."
        )
    elif facts["served"]:
        text = gettext(
            "No worker serves the queue %(queue)s in the database %(database)s. The workers that are running "
            "serve other queues: %(served)s."
        )
    else:
        text = gettext("No worker serves the queue %(queue)s in the database %(database)s.")
    values = {"queue": repr(facts["queue_name"]), "database": repr(facts["database"])}
    return Sentence(text, {**values, "served": "; ".join(facts["served"] or [])})


def _busy(facts: Facts) -> Sentence:
    if facts["lost"]:
        text = gettext(
            "The slots of the workers that serve its queue are taken, %(lost)s of %(slots)s by lost jobs, "
            "which were given back, but whose tasks have not ended."
        )
        return Sentence(text, {name: number(facts[name]) for name in ("slots", "lost")})
    text = ngettext(
        "The only slot of the workers that serve its queue is taken for %(period)s now: %(longest)s.%(more)s",
        "All %(slots)s slots of the workers that serve its queue are taken for %(period)s now: "
        "%(longest)s.%(more)s",
        facts["slots"],
    )
    ahead = facts["ahead"] or 0
    more = ngettext("%(count)s job starts before it.", "%(count)s jobs start before it.", ahead)
    values = {
        "slots": number(facts["slots"]),
        "period": facts.between("since"),
        "longest": facts.jobs("longest", facts["slots"]),
        "more": " " + more % {"count": count(ahead)} if ahead else "",
    }
    return Sentence(text, values)


def _locked(facts: Facts) -> Sentence:
    details = [gettext("process %(pid)s") % {"pid": facts["pid"]}]
    if facts["application"]:
        details.append(facts["application"])
    if facts["since"]:
        details.append(gettext("open for %(period)s") % {"period": facts.between("since")})
    text = gettext("Another transaction has locked its row (%(details)s), and workers skip it.")
    return Sentence(text, {"details": details})


def _behind(facts: Facts) -> Sentence:
    ahead, higher = facts["ahead"] or 0, facts["higher"] or 0
    parts: list[Any] = []
    if higher:
        text = ngettext("%(count)s job of a higher priority", "%(count)s jobs of higher priorities", higher)
        parts.append(text % {"count": count(higher)})
    if ahead > higher:
        text = ngettext(
            "%(count)s job that was due earlier", "%(count)s jobs that were due earlier", ahead - higher
        )
        parts.append(text % {"count": count(ahead - higher)})
    if facts["groups"]:
        text = ngettext(
            "the turn of %(count)s other group", "the turns of %(count)s other groups", facts["groups"]
        )
        parts.append(text % {"count": count(facts["groups"])})
    return Sentence(gettext("Others come before it: %(parts)s."), {"parts": parts})


_FUNCTIONS: dict[str, Callable[[Facts], Sentence]] = {
    "failed": _failed,
    "event": _event,
    "paused": _paused,
    "no_worker": _no_worker,
    "busy": _busy,
    "locked": _locked,
    "behind": _behind,
}
CODES = frozenset({*_SENTENCES, *_FUNCTIONS})
