"""Why a job does not run although it is due, in words: a function for each code of ``pgqueue_why``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..formatting import rate
from .facts import Facts, Reference, Sentence, count, reference

if TYPE_CHECKING:
    from collections.abc import Callable


def _paused(facts: Facts) -> Sentence:
    text = {
        "queue": _("The queue %(name)s is paused: %(details)s."),
        "task": _("The task %(name)s is paused: %(details)s."),
    }.get(facts.text("kind"), _("Everything is paused: %(details)s."))
    details: list[Any] = [Sentence(_("since %(at)s"), {"at": facts.moment("since")})]
    if facts["until"]:
        details.append(Sentence(_("until %(at)s"), {"at": facts.moment("until")}))
    if facts["author"]:
        details.append(_("by %(author)s") % {"author": facts["author"]})
    if facts["reason"]:
        details.append(_("with the reason “%(reason)s”") % {"reason": facts["reason"]})
    return Sentence(text, {"name": facts.text("name"), "details": details})


def _pause_over(facts: Facts) -> Sentence:
    return Sentence(_("The pause of its task is over. A worker lets it go in a moment."))


def _blocked(facts: Facts) -> Sentence:
    return Sentence(_("It is blocked: %(reason)s."), {"reason": facts.text("reason")})


def _limit(facts: Facts) -> Sentence:
    text = _("The limit %(limit)s is full: %(running)s of %(allowed)s jobs run (%(holders)s).%(more)s")
    values = {name: number_format(facts[name], force_grouping=True) for name in ("running", "allowed")}
    holders = facts.jobs("holders", facts["running"])
    return Sentence(text, {"limit": _limit_of(facts), "holders": holders, "more": _in_line(facts), **values})


def _limit_of(facts: Facts) -> Reference:
    name = facts.text("limit")
    # A key without a limit of its own has the one of all such keys: one job at once.
    return Reference("limit", name if facts["is_set"] else None, facts.text("key") or name)


def _in_line(facts: Facts) -> str:
    place = facts["place"]
    if place is None:
        return ""
    if not place:
        return " " + _("It is the next one in the wait queue.")
    text = ngettext(
        "%(count)s job of its key is before it.", "%(count)s jobs of its key are before it.", place
    )
    return " " + text % {"count": count(place)}


def _rate(facts: Facts) -> Sentence:
    known = rate(facts["rate"], timedelta(seconds=facts["per"])) if facts["rate"] else ""
    return Sentence(
        _("The rate %(limit)s%(rate)s is used up: the next start is in %(period)s, at %(at)s.%(more)s"),
        {
            "limit": _limit_of(facts),
            "rate": f" ({known})" if known else "",
            "period": facts.until("next_start"),
            "at": facts.moment("next_start"),
            "more": _in_line(facts),
        },
    )


def _no_worker(facts: Facts) -> Sentence:
    values = {"queue": repr(facts.text("queue_name")), "database": repr(facts.text("database"))}
    if facts["ending"]:
        return Sentence(_("The workers that serve the queue %(queue)s are ending."), values)
    if facts["silent"]:
        return Sentence(_("The workers that serve the queue %(queue)s send no heartbeats."), values)
    if facts["starting"]:
        text = _(
            "No worker serves the queue %(queue)s in the database %(database)s yet: one is starting, but "
            "none of its processes has registered."
        )
        return Sentence(text, values)
    text = _("No worker serves the queue %(queue)s in the database %(database)s.")
    if facts["served"]:
        text = _(
            "No worker serves the queue %(queue)s in the database %(database)s. Those that are registered "
            "serve: %(served)s."
        )
    return Sentence(text, {**values, "served": "; ".join(facts["served"] or [])})


def _busy(facts: Facts) -> Sentence:
    if facts["lost"]:
        text = _(
            "The slots of the workers that serve its queue are taken, %(lost)s of %(slots)s by lost jobs, "
            "which were given back, but whose tasks have not ended."
        )
        numbers = ("slots", "lost")
        return Sentence(text, {name: number_format(facts[name], force_grouping=True) for name in numbers})
    text = ngettext(
        "The only slot of the workers that serve its queue is taken for %(period)s now: %(longest)s.%(more)s",
        "All %(slots)s slots of the workers that serve its queue are taken for %(period)s now: "
        "%(longest)s.%(more)s",
        facts["slots"],
    )
    ahead = facts["ahead"] or 0
    more = ngettext("%(count)s job starts before it.", "%(count)s jobs start before it.", ahead)
    values = {
        "slots": number_format(facts["slots"], force_grouping=True),
        "period": facts.age("since"),
        "longest": facts.jobs("longest", facts["slots"]),
        "more": " " + more % {"count": count(ahead)} if ahead else "",
    }
    return Sentence(text, values)


def _locked(facts: Facts) -> Sentence:
    details = [_("process %(pid)s") % {"pid": facts["pid"]}]
    if facts["application"]:
        details.append(facts.text("application"))
    if facts["since"]:
        details.append(_("open for %(period)s") % {"period": facts.age("since")})
    text = _("Another transaction has locked its row (%(details)s), and workers skip it.")
    return Sentence(text, {"details": details})


def _in_line_of_key(facts: Facts) -> Sentence:
    text = _("It is in the wait queue of its limit key %(key)s, in which %(first)s is the first.%(more)s")
    place = Facts({"place": facts["ahead"]})
    return Sentence(
        text, {"key": facts.text("key"), "first": reference(facts["first"] or 0), "more": _in_line(place)}
    )


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
    return Sentence(_("Others come before it: %(parts)s."), {"parts": parts})


def _uncommitted(facts: Facts) -> Sentence:
    return Sentence(_("The transaction that asks has not committed the job, so no worker can see it yet."))


def _ready(facts: Facts) -> Sentence:
    text = _("Nothing holds it: it has been due for %(period)s, and should start within a moment.")
    return Sentence(text, {"period": facts.age("due_at")})


DUE: dict[str, Callable[[Facts], Sentence]] = {
    "paused": _paused,
    "pause_over": _pause_over,
    "blocked": _blocked,
    "limit": _limit,
    "rate": _rate,
    "no_worker": _no_worker,
    "busy": _busy,
    "locked": _locked,
    "wait_queue": _in_line_of_key,
    "behind": _behind,
    "uncommitted": _uncommitted,
    "ready": _ready,
}
