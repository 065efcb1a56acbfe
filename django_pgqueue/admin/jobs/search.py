"""The search field of the list of jobs.

A number, or an id in the form of ``TaskResult.id``, finds the job with this id. ``key:`` and a
concurrency key or unique key finds the jobs that hold a slot of the key, stand in its line, or have the
unique key: each of these has an index. ``batch:`` and the id of a batch finds its members, and
``fingerprint:`` the jobs of a group of failures, unless they have succeeded since. A place in the arguments
and a value, such as ``kwargs.order_id=17``, finds the jobs with this value (``paths``). Any other term
is searched in the path of the task, the keys, the arguments and the errors, as far as this user may see them
(``visible``). No index supports such a
search, so it is limited: it reads the jobs that are not over and those that finished recently, in windows of
``WINDOW_OF_SCAN`` rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import F, Func, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Now
from django.utils.translation import gettext_lazy as _

from ... import conf, keyed_jobs, results
from ...models.job import Status
from ..lists.changelist import KeysetChangeList
from ..lists.orders import NEWEST, Order
from ..lists.periods import PERIODS, is_span
from .filters import KEPT_SHELF, LIVE_SHELF
from .orders import order_of_jobs
from .paths import at_path, read_path
from .status_filter import PAUSE
from .visible import Shows

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest


__all__ = [
    "BATCH", "FINGERPRINT", "HELP", "KEY", "MEANING", "SCANS", "WINDOW_OF_SCAN", "JobChangeList", "has_index",
    "meaning_of", "search",
]  # fmt: skip

#: How many rows a list of one status reads without a search: each costs several times as much as in the order
#: of the key, as it comes from one of several indexes, and a page should take less than a tenth of a second.
WINDOW_OF_STATUS = 30_000
#: The same for jobs that wait. A larger part of a queue would be sorted.
WINDOW_OF_WAITING = 10_000
#: The same for a search that looks into each job.
WINDOW_OF_SCAN = 5_000
#: What a term may be that makes such a search (``meaning_of``).
SCANS = frozenset({"path", "text"})
MEANING = "pgqueue_meaning"  # the attribute of a request that says what its term is
KEY = "key:"  # what a term for a key begins with
BATCH = "batch:"  # and what a term for the members of a batch begins with
FINGERPRINT = "fingerprint:"

#: A text search covers this period, unless the filter by time is used.
PERIOD = PERIODS["week"][0]

#: The help of the field.
HELP = _(
    "The id of a job; key: and a whole concurrency key or unique key, for the jobs that run or wait "
    "with it; batch: and the id of a batch, for its members; fingerprint: and that of a failure, for the "
    "jobs that failed in the same way; a place in the arguments and the value there, such as "
    "kwargs.order_id=17; or text in the task, keys, arguments or errors. Text and places are searched "
    "in jobs that are not over, and in jobs that finished within the last 7 days or the chosen time."
)
#: The same for users whose search does not read arguments.
HELP_WITHOUT_ARGUMENTS = _(
    "The id of a job; key: and a whole concurrency key or unique key, for the jobs that run or wait "
    "with it; batch: and the id of a batch, for its members; fingerprint: and that of a failure, for the "
    "jobs that failed in the same way; or text in the task, keys or classes of errors. Text is searched "
    "in jobs that are not over, and in jobs that finished within the last 7 days or the chosen time."
)

_ERROR_TEXTS = ("class", "message", "traceback")
_PATH = "%(function)s(%(expressions)s::jsonpath)"


def has_index(alias: str, term: str) -> bool:
    """Return whether an index finds the jobs of this term: those with a key, the members of a batch, or the
    jobs of a group of failures.
    """
    return _batch(term) is not None or bool(_fingerprint(term)) or _has_key(alias, term)


def _has_key(alias: str, term: str) -> bool:
    """Return whether the term is ``key:`` and a key that jobs have."""
    key = _key(term)
    if not key:
        return False
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT EXISTS ({keyed_jobs.SQL})", [key] * 4)
        (found,) = cursor.fetchone()
    return bool(found)


def _key(term: str) -> str:
    term = term.strip()
    key = term.removeprefix(KEY).strip() if term.startswith(KEY) else ""
    return "" if "\0" in key else key


def _batch(term: str) -> int | None:
    """Return the id of the batch, if the term is ``batch:`` and a number."""
    number = term.strip().removeprefix(BATCH).strip()
    is_batch = term.strip().startswith(BATCH) and number.isascii() and number.isdecimal() and len(number) < 20
    return int(number) if is_batch else None


def _fingerprint(term: str) -> str:
    """Return the fingerprint, if the term is ``fingerprint:`` and one."""
    term = term.strip()
    fingerprint = term.removeprefix(FINGERPRINT).strip() if term.startswith(FINGERPRINT) else ""
    return "" if "\0" in fingerprint else fingerprint


def meaning_of(jobs: QuerySet[Any], term: str) -> str:
    """Return what a term is among these jobs: "batch", "fingerprint", "key", "path", "id" or "text"."""
    if _batch(term) is not None:
        return "batch"
    if _fingerprint(term):
        return "fingerprint"
    if _has_key(jobs.db, term):
        return "key"
    if read_path(term):
        return "path"
    try:
        alias, key = results.parse_id(term)
    except ValueError:
        return "text"
    if ":" in term and alias != jobs.db:  # another database: its job with this number is not the one here
        return "text"
    return "id" if jobs.filter(pk=key).exists() else "text"  # a number may also be in the arguments


def _searches_arguments(*, full: bool) -> bool:
    """Return whether arguments are searched. ``full``: whether this user may view them.

    Texts that patterns or a callable redact are not: the database does not know what is shown.
    """
    return full and conf.current().redact.are_names


def search(
    jobs: QuerySet[Any], term: str, period: str, *, full: bool, meaning: str = "", now: Any = None
) -> QuerySet[Any]:
    """Return the jobs that match the term. ``period`` is the choice of the filter by time, if any. ``full``:
    whether this user may view arguments, and so may search in them.

    ``meaning`` and ``now``: what the term is, and the time from which the search counts back, if that is
    known.
    """
    meaning = meaning or meaning_of(jobs, term)
    if meaning == "batch":
        return jobs.filter(batch_id=_batch(term))
    if meaning == "fingerprint":
        # The condition of the indexes. Other jobs of the group have succeeded, or are no longer kept.
        of_group = Q(error_fingerprint=_fingerprint(term)) & ~Q(error_fingerprint="") & ~Q(status="done")
        return jobs.filter(of_group, shelf__in=(LIVE_SHELF, KEPT_SHELF))
    if meaning == "id":
        return jobs.filter(pk=results.parse_id(term)[1])
    if meaning == "key":
        return keyed_jobs.with_key(jobs, _key(term))
    if not is_span(period):
        now = Now() if now is None else now
        jobs = jobs.filter(Q(shelf=LIVE_SHELF) | Q(finished_at__gte=now - PERIOD))
    full = _searches_arguments(full=full)
    path = read_path(term) if meaning == "path" and full else None
    return at_path(jobs, path) if path else _with_text(jobs, term, full)


def _with_text(jobs: QuerySet[Any], term: str, full: bool) -> QuerySet[Any]:
    in_json = json.dumps(term, ensure_ascii=False)[1:-1]
    found = Q(task_path__icontains=term) | Q(unique_key__icontains=term) | Q(limit_key__icontains=term)
    # The term may be copied from a page, where it is JSON, or from the code of the task.
    for spelling in {term, in_json}:
        found |= ~Q(errors=[]) & Q(found_errors__icontains=spelling)
    if full:
        found |= Q(Shows("args", term, jobs.db)) | Q(Shows("kwargs", term, jobs.db))
    matching: QuerySet[Any] = jobs.alias(found_errors=_error_texts(full)).filter(found)
    return matching


def _error_texts(full: bool) -> Concat | Cast:
    """Return an expression for the class, message and traceback of all errors, or only for the class."""
    parts = [
        Cast(
            Func(F("errors"), Value(f'$[*]."{name}"'), function="jsonb_path_query_array", template=_PATH),
            TextField(),
        )
        for name in (_ERROR_TEXTS if full else _ERROR_TEXTS[:1])
    ]
    return Concat(*parts, output_field=TextField()) if full else parts[0]


class JobChangeList(KeysetChangeList):
    """The list of jobs, in a useful order for their status, and with smaller windows for what costs more."""

    pause = PAUSE
    #: Whether a search looks into each job. Such a list is not shown anew while somebody looks at it: that
    #: costs too much.
    is_scan = False

    def get_order(self) -> Order:
        """Return the order for the chosen status and queue. The jobs of a group of failures come in the order
        of their index. What a search has found comes in the order of the key: in the other orders, its
        condition would be planned again for each queue, which takes longer than to read the jobs.
        """
        if _fingerprint(self.query) or self.is_scan:
            return NEWEST
        queue = self.chosen("queue")
        return order_of_jobs(self.root_queryset.db, self.chosen("status"), "" if "\0" in queue else queue)

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, within the window for its filters."""
        full = self.model_admin.has_view_arguments_permission(request)
        help_text: Any = self.search_help_text
        if help_text is HELP and not _searches_arguments(full=full):
            self.search_help_text = str(HELP_WITHOUT_ARGUMENTS)
        self.is_scan = getattr(request, MEANING, "") in SCANS
        status = self.chosen("status")
        if self.query:
            self.window = min(self.window, WINDOW_OF_SCAN)
        elif status in Status.values and Status(status).is_claimable:
            self.window = min(self.window, WINDOW_OF_WAITING)
        elif status in Status.values:
            self.window = min(self.window, WINDOW_OF_STATUS)
        super().get_results(request)

    def chosen(self, name: str) -> str:
        """Return the value of a filter; empty if it is not used."""
        values: list[str] = self.get_filters_params().get(name, [])
        return values[-1] if values else ""

    @property
    def is_live(self) -> bool:
        """Whether the list shows only jobs that are not over."""
        status = self.chosen("status")
        return status in Status.values and not Status(status).is_terminal
