"""Ask several databases side by side, each for a short time: the shards of a queue.

A database that is down must not hold up the answers of the others, nor the page that shows them, not even if
its host accepts a connection and then never answers. Each is asked by a thread of its own, on a connection
that is closed at its end, and the caller waits no longer than the time allows. Each statement has the same
limit, and so has the connect. The threads are daemons: one that hangs does not keep a program from ending.

A database on which the caller has a transaction is asked in the thread of the caller, which sees what is not
committed yet: in a test, and with ``ATOMIC_REQUESTS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import Generic, TypeVar

from django.db import Error, connections
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from .timeout import TimeLimitReached, time_limit

T = TypeVar("T")

SECONDS = 2.0  # for each database
_MOST = 8  # threads at a time for each database: hanging ones must not pile up
_slots: dict[str, BoundedSemaphore] = {}


@dataclass(frozen=True)  # on Python 3.11, a generic one that is frozen cannot have slots
class Answers(Generic[T]):
    """What the databases have answered, and why some have not."""

    given: dict[str, T]
    failed: dict[str, str]

    def __str__(self) -> str:
        """Name the databases without an answer; empty if there is none."""
        return " ".join(
            _("The database %(alias)s did not answer: %(why)s.") % {"alias": alias, "why": why.rstrip(".")}
            for alias, why in self.failed.items()
        )


def ask_all(aliases: Iterable[str], ask: Callable[[str], T], *, keep: bool = False) -> Answers[T]:
    """Return what ``ask`` returns for each alias, in their order. ``keep``: it changes something, and each
    change is committed for itself.

    An error of the database counts as no answer. Any other is raised once all have ended.
    """
    deadline = monotonic() + SECONDS
    asked = {alias: _Question(alias, ask, keep) for alias in aliases}
    threads = [each for alias, each in asked.items() if not connections[alias].in_atomic_block]
    for each in threads:
        each.start()
    for each in asked.values():
        if each not in threads:
            each.answer()
    for each in threads:
        each.join(max(0.0, deadline - monotonic()))
    given, failed = {}, {}
    for alias, each in asked.items():
        answers, error = each.answers, each.error
        if answers:
            given[alias] = answers[0]
        elif error is None:
            failed[alias] = too_slow(SECONDS)
        elif isinstance(error, (Error, TimeLimitReached)):
            failed[alias] = reason(error)
        else:
            raise error
    return Answers(given, failed)


def too_slow(seconds: float) -> str:
    """Return why there is no answer of a database that has had so many seconds."""
    return _("it took longer than %(seconds)s s") % {"seconds": f"{seconds:g}"}


def reason(error: BaseException) -> str:
    """Return why a database did not answer, in one line."""
    text, _question, _rest = " ".join(str(error).split()).partition(" Is the server running")  # of libpq
    return text or type(error).__name__


class _Question(Thread, Generic[T]):
    """One database is asked. It has not ended while there is neither an answer nor an error."""

    def __init__(self, alias: str, ask: Callable[[str], T], keep: bool) -> None:
        super().__init__(name=f"pgqueue-ask-{alias}", daemon=True)
        self._alias, self._ask, self._keep = alias, ask, keep
        self._language, self._zone = translation.get_language(), timezone.get_current_timezone()
        self.answers: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        slot = _slots.setdefault(self._alias, BoundedSemaphore(_MOST))
        if not slot.acquire(timeout=SECONDS):
            return
        try:
            with (
                hurried(self._alias, pooled=False),
                translation.override(self._language),
                timezone.override(self._zone),
            ):
                self.answer()
        finally:
            connections.close_all()  # of this thread
            slot.release()

    def answer(self) -> None:
        try:
            with time_limit(self._alias, SECONDS, keep=self._keep):
                answer = self._ask(self._alias)
            self.answers.append(answer)  # only now is it committed
        except BaseException as error:  # the caller raises it
            self.error = error


@contextmanager
def hurried(alias: str, *, pooled: bool = True) -> Iterator[None]:
    """Let this thread connect to a database within a short time, in the block. A pool has limits of its own;
    without ``pooled``, it is left aside. An empty alias is none.
    """
    options = (connections[alias].settings_dict.get("OPTIONS") or {}) if alias else {}
    if not alias or (pooled and options.get("pool")):
        yield
        return
    connection, brief = connections[alias], {"connect_timeout": max(2, round(SECONDS))}
    brief["tcp_user_timeout"] = round(10_000 * SECONDS)  # milliseconds: a thread hangs for ten times the time
    before = connection.settings_dict
    options = {name: value for name, value in options.items() if name != "pool"}
    connection.settings_dict = {**before, "OPTIONS": {**options, **brief}}
    try:
        yield
    finally:
        connection.settings_dict = before
