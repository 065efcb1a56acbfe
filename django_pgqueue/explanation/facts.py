"""``Facts``: what ``pgqueue_why`` has found, read as moments, periods, jobs and counts for sentences."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils.dateparse import parse_datetime
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..formatting import period
from ..postgres.clock import local

MOST_COUNTED = 1000
_A_LIFETIME = timedelta(days=50 * 365)  # what waits for an event at any time is due in almost a century


class Facts:
    """The facts of one reason. What is missing in them is None, or an empty text."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def __getitem__(self, name: str) -> Any:
        return self._facts.get(name)

    def text(self, name: str) -> str:
        """Return a text."""
        return str(self._facts.get(name) or "")

    def at(self, name: str) -> datetime | None:
        """Return a time."""
        return parse_datetime(self._facts[name]) if self._facts.get(name) else None

    def moment(self, name: str) -> Moment | str:
        """Return a time to be shown; an empty text if there is none."""
        found = self.at(name)
        return "" if found is None else Moment(found)

    def age(self, name: str) -> str:
        """Return for how long a time has been over."""
        return self._between(self.at(name), self.at("asked_at"))

    def until(self, name: str) -> str:
        """Return how long it is until a time."""
        return self._between(self.at("asked_at"), self.at(name))

    def has_end(self, name: str) -> bool:
        """Return whether a time is one that a person has meant."""
        end, now = self.at(name), self.at("asked_at")
        return end is not None and now is not None and end - now < _A_LIFETIME

    def job(self, found: dict[str, Any]) -> Sentence:
        """Return a job or a batch of the facts with what is known about it."""
        since = found.get("since")
        known = [found.get("name") or found.get("task_path"), found.get("state")]
        if since:
            known.append(
                _("for %(period)s") % {"period": self._between(parse_datetime(since), self.at("asked_at"))}
            )
        details = ", ".join(filter(None, known))
        values = {"job": reference(found["id"], is_batch=bool(found.get("is_batch"))), "details": details}
        return Sentence(_("%(job)s (%(details)s)") if details else "%(job)s", values)

    def jobs(self, name: str, total: int | None = None) -> list[Any]:
        """Return those jobs of the facts, and how many more there are."""
        found = self._facts.get(name) or []
        more = (total or 0) - len(found)
        others = (
            [ngettext("%(count)s more", "%(count)s more", more) % {"count": count(more)}] if more > 0 else []
        )
        return [*(self.job(each) for each in found), *others]

    def error(self) -> str:
        """Return the last error in words."""
        error = self._facts.get("error")
        if not error:
            return ""
        words = f"{str(error.get('class', '')).removeprefix('builtins.')}: {error.get('message', '')}"
        if not error.get("step"):
            return words
        return _("%(error)s (in the step %(step)s)") % {"error": words, "step": repr(error["step"])}

    @staticmethod
    def _between(begin: datetime | None, end: datetime | None) -> str:
        return period(end - begin) if begin is not None and end is not None else ""


def reference(key: int, *, is_batch: bool = False) -> Reference:
    """Return a job or a batch, by its id."""
    if is_batch:
        return Reference("batch", key, _("batch %(id)s") % {"id": key})
    return Reference("job", key, _("job %(id)s") % {"id": key})


def count(number: int) -> str:
    """Return a number that was counted up to a limit."""
    if number > MOST_COUNTED:
        return _("more than %(count)s") % {"count": number_format(MOST_COUNTED, force_grouping=True)}
    return number_format(number, force_grouping=True)


# ----------------------------------------------------------------------------
# The parts of a sentence about a job, so that a page can make links of the ids in it.
#
# A ``Sentence`` is a translated text with named places. What stands there is a string, a moment, a reference
# to something that may have a page, another sentence, or a list of these.


class Moment(NamedTuple):
    """A moment, shown in the current time zone."""

    at: datetime


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
    if isinstance(part, Moment):
        return f"{local(part.at):%Y-%m-%d %H:%M:%S}"
    if isinstance(part, Reference):
        return part.text
    if isinstance(part, list):
        return ", ".join(plain(each) for each in part)
    return str(part)
