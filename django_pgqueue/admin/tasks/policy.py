"""The policy of a task in words: every option of its definition, and where a default comes from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ... import conf, wording
from .. import display

if TYPE_CHECKING:
    from ...concurrency import Concurrency
    from ...definition import Task
    from ...rates import Rate
    from ...unique import Unique

__all__ = ["Option", "policy"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    label: str
    text: str
    is_default: bool = False


def policy(task: Task[..., Any]) -> list[Option]:
    """Return the options of a task, in the order in which they matter in the life of a job."""
    settings = conf.current()
    priority = _("%(queue)s, priority %(priority)d") % {"queue": task.queue_name, "priority": task.priority}
    attempts = settings.max_attempts if task.max_attempts is None else task.max_attempts
    return [
        Option(_("Queue"), priority if task.priority else task.queue_name, not task.priority),
        Option(_("Calls"), _calls(task), task.payload is None),
        Option(_("Unique"), _unique(task.unique), task.unique is None),
        Option(_("Concurrency"), _concurrency(task.concurrency), task.concurrency is None),
        Option(_("Rate"), _rate(task.rate), task.rate is None),
        Option(_("Group"), _key(task.group) if task.group else _("none"), task.group is None),
        Option(_("Attempts"), _by_default(display.number(attempts), task.max_attempts, "MAX_ATTEMPTS"),
               task.max_attempts is None),
        Option(_("Wait before a retry"), _backoff(task), task.backoff is None),
        Option(_("Retried after"), _names(task.retry_on) or _("any exception"), task.retry_on is None),
        Option(_("Fails at once after"), _names(task.fail_on) or _("no exception"), task.fail_on is None),
        Option(_("Timeout"), _timeout(task), task.timeout is None),
        Option(_("Expires"), _expires(task.expires_after), task.expires_after is None),
        Option(_("If its worker is lost"), _lost(task), task.on_lost == "rerun"),
        Option(_("Runs"), _runs(task), not (task.atomic or task.takes_context)),
        Option(_("Logs"), _logs(task), task.capture_logs is None),
        Option(_("Database"), task.database or _("that of its backend"), task.database is None),
    ]  # fmt: skip


def _by_default(text: str, given: Any, setting: str) -> str:
    if given is not None:
        return text
    return _("%(value)s (the setting %(setting)s)") % {"value": text, "setting": setting}


def _calls(task: Task[..., Any]) -> str:
    if task.payload is None:
        return _("with arguments")
    return _("the rows of %(model)s") % {"model": task.payload._meta.label}


def _unique(unique: Unique | None) -> str:
    if unique is None:
        return _("no, every call is a job")
    if unique.window is not None:
        how_long = _("once in %(period)s") % {"period": wording.exact(unique.window)}
    elif unique.scope == "live":
        how_long = _("until the job is over")
    else:
        how_long = _("while the job waits")
    by = _("by all arguments") if unique.by is None else _("by %(what)s") % {"what": _key(unique.by)}
    if unique.key is not None:
        by = _("by the key %(key)s") % {"key": unique.key}
    again = {
        "existing": _("another call returns the existing job"),
        "replace": _("another call replaces it"),
        "earliest": _("another call lets it run at the earlier time"),
        "raise": _("another call raises an error"),
    }
    return ", ".join([how_long, by, again.get(unique.on_conflict, unique.on_conflict)])


def _concurrency(limit: Concurrency | None) -> str:
    if limit is None:
        return _("any number at once")
    parts = [_("at most %(count)s at once") % {"count": display.number(limit.limit)}]
    if limit.key is not None:
        parts.append(_("for each %(key)s") % {"key": _key(limit.key)})
    if limit.name is not None:
        parts.append(_("limit %(name)s") % {"name": limit.name})
    others = {"skip": _("others are skipped"), "cancel": _("a new one cancels older ones")}
    parts.append(others.get(limit.on_conflict, _("others wait")))
    return ", ".join(parts)


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return _("any number of starts")
    parts = [_("at most %(rate)s") % {"rate": wording.rate(rate.starts, rate.per)}]
    if rate.burst > 1:
        parts.append(_("up to %(count)s at once after a quiet time") % {"count": display.number(rate.burst)})
    if rate.key is not None:
        parts.append(_("for each %(key)s") % {"key": _key(rate.key)})
    if rate.name is not None:
        parts.append(_("limit %(name)s") % {"name": rate.name})
    return ", ".join(parts)


def _backoff(task: Task[..., Any]) -> str:
    backoff = task.backoff
    if backoff is None:
        settings = conf.current()
        return _("%(base)s, doubled up to %(ceiling)s, unless the queue has its own") % {
            "base": display.span(settings.backoff_base),
            "ceiling": display.span(settings.backoff_ceiling),
        }
    if callable(backoff):
        return _("%(function)s decides") % {"function": _key(backoff)}
    if isinstance(backoff, (int, float)):
        return display.span(backoff)
    return _("%(waits)s; the last one repeats") % {"waits": ", ".join(display.span(each) for each in backoff)}


def _timeout(task: Task[..., Any]) -> str:
    seconds = conf.current().timeout if task.timeout is None else task.timeout
    text = _("none") if seconds is None else display.span(seconds)
    return _by_default(text, task.timeout, "TIMEOUT")


def _expires(after: timedelta | None) -> str:
    if after is None:
        return _("never")
    return _("if it has not started after %(period)s") % {"period": wording.exact(after)}


def _lost(task: Task[..., Any]) -> str:
    crashes = conf.current().crash_limit
    if task.on_lost == "fail":
        return _("it fails")
    words = ngettext(
        "it runs again, and fails after %(count)d crash", "it runs again, and fails after %(count)d crashes",
        crashes,
    )  # fmt: skip
    return words % {"count": crashes}


def _runs(task: Task[..., Any]) -> str:
    parts = [_("on the event loop") if iscoroutinefunction(task.func) else _("on a thread")]
    if task.atomic:
        parts.append(_("in one transaction with its finish"))
    if task.takes_context:
        parts.append(_("takes the context"))
    return ", ".join(parts)


def _logs(task: Task[..., Any]) -> str:
    if task.capture_logs is None:
        return _("as CAPTURE_LOGS says")
    if task.capture_logs is False:
        return _("are not kept")
    if task.capture_logs is True:
        return _("are kept")
    return _("are kept from %(level)s on") % {"level": task.capture_logs}


def _key(key: Any) -> str:
    """Return the name of an argument, several of them, or a callable."""
    if callable(key):
        return f"{getattr(key, '__qualname__', None) or type(key).__qualname__}()"
    return key if isinstance(key, str) else ", ".join(map(str, key))


def _names(types: tuple[type[BaseException], ...] | None) -> str:
    return ", ".join(each.__qualname__ for each in types or ())
