"""The search field of the list of jobs.

``HELP`` says what a term may be. An index finds the job with an id, also in the form of ``TaskResult.id``,
the live jobs with a key, the jobs of a batch, and the jobs of a group of failures, unless they have
succeeded. Other terms are searched in each job, as far as this user may see it. Such a search is limited: it
reads the live jobs and jobs that finished recently, in windows of ``WINDOW_OF_SCAN`` rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.admin.views.main import SEARCH_VAR
from django.db import connections, router
from django.db.models import BooleanField, JSONField, Q, QuerySet, TextField, Value
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KeyTransform
from django.db.models.lookups import Exact
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...encoding import meanings, whole_number
from ...jobs import limits
from ...models.job import Status, is_indexed
from ...postgres import fetch_rows, fetch_value, sql_of
from ...postgres.aliases import primary_of, same_database
from ...redaction import names_of_call
from ...redaction_rules import coarse_expression, name_expression
from ...tasks.links import parse_id
from ...tasks.registry import KEPT_QUEUES
from ..lists import NEWEST, PERIODS, KeysetChangeList, KeysetOrder, NamesInUse, OtherAddress, is_span
from .filters import KEPT_SHELF, LIVE_SHELF, PAUSE

#: How many rows a list of one status reads without a search: each costs several times as much as in the order
#: of the key, as it comes from one of several indexes, and a page should take less than a tenth of a second.
WINDOW_OF_STATUS = 30_000
WINDOW_OF_WAITING = 10_000  # of jobs that wait; a larger part of a queue would be sorted
WINDOW_OF_SCAN = 5_000  # of a search that looks into each job
#: The same for the first page, if a status is chosen: its jobs may be few among all that are read.
FIRST_WINDOW_OF_SCAN = 500
#: What a term may name before a colon; an index finds these.
INDEXED = frozenset({"batch", "fingerprint", "key"})
NAMED = INDEXED | {"group"}
MEANING = "pgqueue_meaning"  # the attribute of a request that says what its term is
#: A text search covers this period, unless the filter by time is used.
PERIOD = PERIODS["week"][0]
#: The help of the field, for users who may search arguments, and for others, and what unfolds below.
HELP = _("An id, a text, or a value in the arguments, such as kwargs.order_id=17.")
HELP_WITHOUT_ARGUMENTS = _("An id, a task, a key or the class of an error, such as batch:26.")
MORE = _(
    "key: and a whole limit key or unique key finds the jobs that run or wait with it. group: and a group "
    "finds its live jobs. batch: and the id of a batch finds its members. fingerprint: and that of a failure "
    "finds the jobs that failed in the same way. queue: and task: choose a filter. Everything else is "
    "searched in live jobs, and in jobs that finished within the last 7 days or the chosen time."
)
#: The filters that a term may choose.
CHOOSES = ("queue", "task")
MOST_KEYS = 50  # that are suggested


def meaning_of(jobs: QuerySet[Any], term: str, *, full: bool) -> str:
    """Return what a term is among these jobs: "argument" (that is in the index), "batch", "fingerprint",
    "group", "key", "path", "id" or "text". ``full``: whether this user may view arguments; no other user may
    learn what is in the index.
    """
    kind, value = _named(term)
    if kind in {"fingerprint", "group"} or (kind == "batch" and whole_number(value) is not None):
        return kind
    if kind == "key" and fetch_value(jobs.db, f"SELECT EXISTS ({limits.SQL})", *[value] * 4):
        return kind
    if path := read_path(term):
        entry = _entry(path) if full else ""
        return "argument" if entry and jobs.filter(is_indexed(entry)).exists() else "path"
    try:
        alias, number = parse_id(term)
    except ValueError:
        return "text"
    if ":" in term and not names_database_of(alias, jobs):  # the number is not that of a job here
        return "text"
    return "id" if jobs.filter(pk=number).exists() else "text"  # a number may also be in the arguments


def _named(term: str) -> tuple[str, str]:
    """Return which of ``NAMED`` a term names, and what follows the colon; both empty if it names none."""
    kind, _colon, value = (part.strip() for part in term.partition(":"))
    return (kind, value) if kind in NAMED and value else ("", "")


def names_database_of(alias: str, jobs: QuerySet[Any]) -> bool:
    """Return whether the alias in the public id of a job is that of these jobs. The id names where the job is
    changed, but a router may read them from a replica.
    """
    writes = primary_of(jobs.db) if jobs._db else router.db_for_write(jobs.model)  # type: ignore[attr-defined]
    return any(same_database(alias, each) for each in (jobs.db, writes))


def search(
    jobs: QuerySet[Any], term: str, period: str, *, full: bool, meaning: str, now: Any, names: NamesInUse
) -> QuerySet[Any]:
    """Return the jobs that match the term. ``period`` is the choice of the filter by time, if any. ``full``:
    whether this user may view arguments, and so may search in them. ``meaning``, ``now`` and ``names``: what
    the term is, the time from which the search counts back, and the names of the database's tasks.
    """
    _kind, value = _named(term)
    if meaning == "batch":
        return jobs.filter(batch_id=int(value))
    if meaning == "fingerprint":
        # The condition of the indexes. Other jobs of the group have succeeded, or are no longer kept.
        of_group = Q(error_fingerprint=value) & ~Q(error_fingerprint="") & ~Q(status="done")
        return jobs.filter(of_group, shelf__in=(LIVE_SHELF, KEPT_SHELF))
    if meaning == "id":
        return jobs.filter(pk=parse_id(term)[1])
    if meaning == "group":
        return jobs.filter(shelf=LIVE_SHELF, group_key=value)
    if meaning == "key":
        return limits.with_key(jobs, value)
    full = full and conf.current().redact.are_names  # the database does not know what else is redacted
    path = read_path(term) if full and meaning in {"path", "argument"} else None
    if meaning == "argument":
        entry = _entry(path)
        return jobs.filter(is_indexed(entry)) if entry else jobs.none()
    if not is_span(period):
        jobs = jobs.filter(Q(shelf=LIVE_SHELF) | Q(finished_at__gte=now - PERIOD))
    return at_path(jobs, names, *path) if path else _with_text(jobs, term, names if full else None)


# The columns in the conditions below have no table: in a subquery, Django gives it another name.


def _with_text(jobs: QuerySet[Any], term: str, names: NamesInUse | None) -> QuerySet[Any]:
    """Return the jobs with the text. ``names``: None if arguments and messages are not searched."""
    in_json = json.dumps(term, ensure_ascii=False)[1:-1]
    found = Q(task_path__icontains=term) | Q(unique_key__icontains=term) | Q(limit_key__icontains=term)
    # The term may be copied from a page, where it is JSON, or from the code of the task.
    for spelling in {term, in_json}:
        found |= ~Q(errors=[]) & Q(found_errors__icontains=spelling)
    if names:
        found |= Q(shows("args", term, names)) | Q(shows("kwargs", term, names))
    parts = ("class", "message", "traceback") if names else ("class",)
    texts = " || ".join(f"jsonb_path_query_array(errors, '$[*].\"{part}\"')::text" for part in parts)
    matching: QuerySet[Any] = jobs.alias(
        found_errors=RawSQL(texts, [], TextField())  # noqa: S611 - constants
    ).filter(found)
    return matching


class JobChangeList(KeysetChangeList):
    """The list of jobs, in a useful order for their status, and with smaller windows for what costs more."""

    pause = PAUSE
    made_at = "enqueued_at"
    meaning = ""
    more_help: Any = ""  # below the field, with what it suggests
    suggestions: Sequence[str] = ()

    def get_order(self) -> KeysetOrder:
        """Return the order for the chosen status and queue. What a search has found comes in the order of the
        key: in others, its condition would be planned for each queue, which takes longer than to read jobs.
        """
        if self.meaning in {"argument", "fingerprint"} or self.is_scan:
            return NEWEST
        alias, status, queue = self.root_queryset.db, self.chosen("status"), self.chosen("queue")
        if self.chosen("due") and status in {"", Status.PENDING}:
            return order_of_due(alias, queue)
        return order_of_jobs(alias, status, queue)

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, within the window for its filters."""
        full = self.model_admin.has_view_arguments_permission(request)
        help_text: Any = self.search_help_text
        if help_text is HELP:  # and not that of a project
            # A text, because themes put it into an attribute.
            is_full = full and conf.current().redact.are_names
            self.search_help_text = str(HELP if is_full else HELP_WITHOUT_ARGUMENTS)
            self.more_help, self.suggestions = MORE, list(self._suggestions())
        self.meaning = getattr(request, MEANING, "")
        status, window = self.chosen("status"), self.window
        if self.query:
            window = WINDOW_OF_SCAN
            if status in Status.values:
                self.first_window = FIRST_WINDOW_OF_SCAN
        elif self.chosen("due"):
            window = WINDOW_OF_WAITING
        elif status in Status.values:
            window = WINDOW_OF_WAITING if Status(status).is_claimable else WINDOW_OF_STATUS
        self.window = min(self.window, window)
        super().get_results(request)

    def get_filters(self, request: HttpRequest) -> Any:
        """Let a term such as queue:mail choose a filter."""
        kind, _colon, value = (part.strip() for part in self.query.partition(":"))
        if kind in CHOOSES and value:
            raise OtherAddress({SEARCH_VAR: "", kind: value})
        return super().get_filters(request)

    def _suggestions(self) -> Iterator[str]:
        """Yield terms that the field suggests: the choices of the filters, and the limit keys of running
        jobs, which have an index.
        """
        specs: list[Any] = list(self.filter_specs)
        for name in CHOOSES:
            for choices in (each.lookup_choices for each in specs if name in each.expected_parameters()):
                yield from (f"{name}:{value}" for value, _label in choices)
        running = self.root_queryset.filter(shelf=LIVE_SHELF, status="running", limit_key__isnull=False)
        for key in sorted(set(running.order_by().values_list("limit_key", flat=True)[:MOST_KEYS])):
            yield f"key:{key}"

    def chosen(self, name: str) -> str:
        """Return the value of a filter; empty if it is not used."""
        values: list[str] = self.get_filters_params().get(name, [])
        return values[-1] if values else ""

    @property
    def shows_arguments(self) -> bool:
        """Whether the arguments of jobs were searched, and so are shown on a phone, too."""
        return self.meaning in {"argument", "path", "text"}

    @property
    def is_scan(self) -> bool:
        """Whether a search looks into each job. Such a list is not refreshed: that costs too much."""
        return self.meaning in {"path", "text"}


# A search term that names a place in the arguments, and the value there: ``kwargs.order_id=17``, which may be
# written ``order_id=17``, or ``args.0.customer="Ann Lee"``. The value is a number, a text, ``true``,
# ``false`` or ``null``, as the page of a job shows it. In quotation marks, it is a text in any case. Lists
# and objects are not compared: a part of them may be redacted, and would be found out. For the same reason, a
# place that has a redacted name on its way is never found.

_KEY = r"""\.(?:"[^"]*"|[^.="\s]+)"""
_TERM = re.compile(rf"(args|kwargs)((?:{_KEY}){{1,50}})\s*=\s*(\S.*)", re.DOTALL)
_NAMED = re.compile(r"[^\W\d]\w*\s*=\s*\S.*", re.DOTALL)


def read_path(term: str) -> tuple[str, list[str], list[Any]] | None:
    """Return the column, the names and numbers on the way from there, and each of the values that it may be,
    the last one as a text; None if a term does not name a place and a value.
    """
    term = term.strip()
    match = _TERM.fullmatch(f"kwargs.{term}" if _NAMED.fullmatch(term) else term)
    if match is None:
        return None
    column, way, text = match.groups()
    keys = [key[1:].strip('"') for key in re.findall(_KEY, way)]
    if column == "args" and whole_number(keys[0], most=9_999) is None:
        return None
    with suppress(ValueError):  # Django takes what int() reads for a place in a list; no name is a number
        if column == "kwargs" and int(keys[0]):
            return None
    return column, keys, meanings(text)


def _entry(path: tuple[str, list[str], list[Any]] | None) -> str:
    """Return what the index of arguments has of a place and a value; empty if it can have none of them, or if
    they are redacted.
    """
    redact = conf.current().redact
    if path is None or path[0] != "kwargs" or len(path[1]) > 1 or not redact.are_names:
        return ""
    [name] = path[1]
    return "" if redact.hide(name) else f"{name}={path[2][-1]}"


def at_path(
    jobs: QuerySet[Any], names: NamesInUse, column: str, keys: list[str], values: list[Any]
) -> QuerySet[Any]:
    """Return the jobs that have the value there, as far as the admin shows it."""
    hide = conf.current().redact.hide
    if any(map(hide, keys)):
        return jobs.none()
    if column == "args":
        place = int(keys[0])
        shown = [path for path in names.tasks if not hide(names_of_call(path).at(place))]
        jobs = jobs.filter(task_path__in=shown)
    found: Any = column
    for key in keys:
        found = KeyTransform(key, found)
    return jobs.filter(reduce(or_, (Q(Exact(found, Value(value, JSONField()))) for value in values)))


# The order of the list of jobs for each status: the jobs that matter most come first. These orders use
# existing indexes. Waiting jobs are in the order of the claim, for each queue; in its index, those with a
# group stand apart. Retrying and blocked jobs have an index of their own, by the time at which they are due.
# Finished jobs have an index on the time when they ended; in the kept leaf, it starts with the queue. Running
# jobs are few, and are sorted. Jobs with any status are in the order of their key, newest first.

#: The jobs of at most this many queues are merged. With more queues, the list is in the order of the key.
MOST_QUEUES = 30
_SOME_OF_KEPT = f"{KEPT_QUEUES} SELECT kept.queue_name FROM kept LIMIT {MOST_QUEUES + 1}"  # noqa: S608 - constants
#: The states of which an index has all jobs (pgqueue_job_state).
HELD = frozenset({Status.RETRY, Status.BLOCKED})
_TO_RUN = ("-priority", "run_after", "id")
_FINISHED = ("-finished_at", "-id")
#: Whether a job has a group: no field of the model, because PostgreSQL computes it. A condition on
#: ``group_key`` would not be the one that the index of the claim begins with.
_GROUPED = RawSQL("is_grouped", [], BooleanField())


def order_of_jobs(alias: str, status: str, queue: str) -> KeysetOrder:
    """Return the order for jobs with this status and queue; both may be empty."""
    if status not in Status.values:
        return NEWEST
    state = Status(status)
    if state == Status.RUNNING:
        return KeysetOrder(("last_attempted_at", "id"))
    queues = [queue]
    if not queue:
        kind = state.value if state in HELD else "claimable"
        sql = _SOME_OF_KEPT if state.is_terminal else f"SELECT _pgqueue_queues_with('{kind}')"
        queues = [name for (name,) in fetch_rows(alias, sql)]
    are_few = len(queues) <= MOST_QUEUES
    if not (are_few or state in HELD):
        return NEWEST

    def parts(jobs: QuerySet[Any]) -> list[QuerySet[Any]]:
        if state in HELD:
            held = jobs.filter(shelf=LIVE_SHELF, status=state)
            return [held.filter(queue_name=name) for name in queues] if are_few else [held]
        if not state.is_terminal:
            kinds = [~_GROUPED, _GROUPED]
            return [jobs.filter(kind, queue_name=name) for name in queues for kind in kinds]
        past = jobs.filter(shelf__gt=LIVE_SHELF, shelf__lt=KEPT_SHELF)
        kept = [jobs.filter(shelf=KEPT_SHELF, queue_name=name, status=state) for name in queues]
        return kept if state == Status.FAILED else [past, *kept]

    columns = ("run_after", "id") if state in HELD else _FINISHED if state.is_terminal else _TO_RUN
    return KeysetOrder(columns, parts)


_PRIORITIES = sql_of(__file__, "priorities")


def order_of_due(alias: str, queue: str) -> KeysetOrder:
    """Return the order for jobs that are due now, or later: each priority of a queue is a range of the index.
    With very many priorities, the index is read from the first one to the last.
    """
    queues = "CAST(%s AS text)" if queue else "_pgqueue_queues_with('claimable')"
    sql = _PRIORITIES.format(queues=queues, most=2 * MOST_QUEUES + 1)
    ranges = fetch_rows(alias, sql, [queue] if queue else [])
    if len(ranges) > 2 * MOST_QUEUES:
        return order_of_jobs(alias, Status.PENDING, queue)

    def due(jobs: QuerySet[Any]) -> list[QuerySet[Any]]:
        return [
            jobs.filter(_GROUPED if is_grouped else ~_GROUPED, queue_name=name, priority=priority)
            for name, is_grouped, priority in ranges
        ] or [jobs.none()]

    return KeysetOrder(_TO_RUN, due)


# A condition for jobs in whose arguments a text occurs, as far as the admin shows them. The database can
# compare the names of REDACT (``visible.sql``). It knows nothing of patterns and callables of Python, so with
# them arguments are not searched at all.

_VALUE_SQL = sql_of(__file__, "visible")
_ARGS_SQL = sql_of(__file__, "visible_args")
_HAS_PLACES = "coalesce((%(hidden)s::jsonb -> task_path ->> 'any')::boolean, true)"
_PARAMETER = re.compile(r"%\((\w+)\)s")


def shows(column: str, text: str, known: NamesInUse) -> RawSQL:
    """Return whether a text is in the column ``args`` or ``kwargs``, as far as it is shown."""
    names, like = conf.current().redact.names, connections[known.alias].ops.prep_for_like_query
    values = {
        "like": f"%{like(text)}%",
        "like_json": f"%{like(json.dumps(text, ensure_ascii=False)[1:-1])}%",
        "names": name_expression(names),
        "path": f'$.** ? (@.type() == "object").keyvalue() ? (@.key like_regex '
        f'{json.dumps(coarse_expression(names))} flag "i")',
        "hidden": json.dumps(hidden_places(known.tasks)) if column == "args" else "{}",
    }
    has_hidden, shown = (_HAS_PLACES, _ARGS_SQL) if column == "args" else ("false", column)
    sql = _VALUE_SQL.format(value=column, has_hidden=has_hidden, shown=shown)
    parameters = [values[name] for name in _PARAMETER.findall(sql)]
    return RawSQL(_PARAMETER.sub("%s", sql), parameters, BooleanField())  # noqa: S611 - constants


def hidden_places(tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return which positional arguments are redacted, by task: some places, and all from one on. Of
    another task, none are searched.
    """
    hide, found = conf.current().redact.hide, {}
    for path in tasks:
        names = names_of_call(path)
        places = [place for place, name in enumerate(names.each) if hide(name)]
        beyond = len(names.each) if names.rest and hide(names.rest) else None
        found[path] = {"places": places, "from": beyond, "any": bool(places) or beyond is not None}
    return found
