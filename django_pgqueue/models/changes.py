"""Change existing jobs: cancel, retry, run now, edit, extend. Each runs one statement, for ids or a queryset.

The functions are public, and they are the methods of ``Job`` and of its querysets, so that ``job.cancel()``
and ``cancel(job)`` never differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet

from ..compat import InvalidTask, TaskResult, for_async
from ..exceptions import WrongBackend, duration as seconds
from ..postgres import fetch_value
from ..postgres.aliases import write_alias
from ..tasks import options as validation
from ..tasks.links import parse_id
from ..tasks.routing import default_backend, is_ours, resolve

if TYPE_CHECKING:
    from ..explanation import Reason

OneJob: TypeAlias = "Changes | int | str | TaskResult[Any, Any]"
Jobs: TypeAlias = "OneJob | QuerySet[Any] | Iterable[OneJob | QuerySet[Any]]"
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def _changing(function: F) -> F:
    """Keep a method out of templates and of the manager: ``Job.objects.cancel()`` would cancel every job."""
    function.alters_data = function.queryset_only = True  # type: ignore[attr-defined]
    return function


def _counting(function: Callable[P, list[int]]) -> Callable[P, int]:
    """Return the public function, which returns how many jobs have changed, instead of their ids."""

    @_changing
    @wraps(function)
    def count(*args: P.args, **kwargs: P.kwargs) -> int:
        return len(function(*args, **kwargs))

    count.__name__ = count.__qualname__ = function.__name__.removesuffix("_ids")
    count.__signature__ = signature(function).replace(return_annotation="int")  # type: ignore[attr-defined]
    return count


def cancel_ids(jobs: Jobs, /) -> list[int]:
    """Cancel jobs: a ``Job``, an id, a ``TaskResult``, a queryset of jobs, or an iterable of these.

    Jobs that have not started are cancelled at once. Running jobs are asked to stop. An async task is
    cancelled at its next ``await``, and a sync task can check ``current_job().cancel_requested``. Return the
    number of changed rows, which does not include finished jobs.

    If a job of the relay has handed over its call, a further job of the relay cancels the job of this call in
    the other database. Such a job of the relay stays finished, and counts as changed.
    """
    return _change("pgqueue_cancel({ids})", jobs)


def retry_ids(jobs: Jobs, /, *, done: bool = False) -> list[int]:
    """Run jobs again, now: a ``Job``, an id, a ``TaskResult``, a queryset of jobs, or an iterable of these.

    It stays the same job, with its id, attempts and errors. It gets a new budget of attempts, its crash count
    is reset, and its expiry is removed. Jobs that have succeeded run again only with ``done=True``. Running
    jobs do not change, and neither do jobs that wait for other jobs or in the wait queue of their limit key.
    A finished job stays in history if another job has its unique key. Return the number of changed rows.
    """
    return _change("pgqueue_retry({ids}, %s)", jobs, bool(done))


def run_now_ids(jobs: Jobs, /) -> list[int]:
    """Run jobs now that wait for a later time, and change nothing else. Return the number of changed jobs."""
    return _change("pgqueue_run_now({ids})", jobs)


def edit_ids(
    jobs: Jobs,
    /,
    *,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    queue_name: str | None = None,
) -> list[int]:
    """Change the priority, the time or the queue of jobs that wait: a ``Job``, an id, a ``TaskResult``, a
    queryset of jobs, or an iterable of these.

    Omitted values stay as they are. The next claim sees the change. A due job that gets another queue or
    priority is due from now on, so it comes after the jobs that are due there already. Running and finished
    jobs do not change. Return the number of changed rows.

    Raise ``TypeError`` if there is nothing to change, and ``ValueError`` for a bad value.
    """
    if priority is None and run_after is None and queue_name is None:
        raise TypeError("edit() changes nothing: give it a priority, run_after or queue_name.")
    try:
        moment, delay = validation.run_after(run_after)
        return _change(
            "pgqueue_edit({ids}, %s::integer, %s::timestamptz, %s, %s::interval)",
            jobs,
            None if priority is None else validation.priority(priority),
            moment,
            None if queue_name is None else validation.queue_name(queue_name),
            delay,
        )
    except InvalidTask as error:
        raise ValueError(f"edit(): {error}") from None


def extend_ids(jobs: Jobs, duration: float | timedelta, /) -> list[int]:
    """Let running jobs run ``duration`` (seconds or a timedelta) more from now: a ``Job``, an id, a
    ``TaskResult``, a queryset of jobs, or an iterable of these.

    Later deadlines do not change, and a job without a timeout does not get one. Return how many of the jobs
    are running. The worker reads the deadline again before it times a job out, so an extension works until
    that moment. Raise ``TypeError`` or ``ValueError`` if this is not a duration of up to 100 years.
    """
    found = seconds("extend(jobs, duration)", duration)
    return _change("pgqueue_extend({ids}, %s * interval '1 second')", jobs, found)


cancel = _counting(cancel_ids)
acancel = for_async(cancel)
retry = _counting(retry_ids)
aretry = for_async(retry)
run_now = _counting(run_now_ids)
arun_now = for_async(run_now)
edit = _counting(edit_ids)
aedit = for_async(edit)
extend = _counting(extend_ids)
aextend = for_async(extend)


def _change(call: str, jobs: Any, *more: Any) -> list[int]:
    """Call a function on jobs. ``{ids}`` stands for an array of ids. Return the ids of the changed ones."""
    given = [jobs] if isinstance(jobs, _ONE) or not isinstance(jobs, Iterable) else list(jobs)
    changed, ids = list[int](), dict[str, list[int]]()
    for each in given:
        if isinstance(each, QuerySet):
            changed += _change_all(call, each, *more)
        else:
            alias, pk = locate(each)
            ids.setdefault(alias, []).append(pk)
    for alias, some in ids.items():
        changed += fetch_value(alias, "SELECT " + call.format(ids="%s::bigint[]"), some, *more)
    return changed


def _change_all(call: str, jobs: QuerySet[Any], *more: Any) -> list[int]:
    """Call the function on the jobs of a queryset, in the database that the router selects for writing."""
    if not issubclass(jobs.model, Changes):
        raise TypeError(
            f"A queryset of {jobs.model.__name__} does not contain jobs. Use one of Job, such as "
            "Job.objects.filter(...)."
        )
    jobs._for_write = True  # type: ignore[attr-defined]  # so that .db asks the router where to write
    alias = jobs.db
    query = jobs.values("pk").query
    if not (query.is_sliced or query.select_for_update):  # rows are locked in the requested order
        query.clear_ordering(force=True)
    try:
        ids, parameters = query.get_compiler(alias).as_sql()
    except EmptyResultSet:
        return []
    changed: list[int] = fetch_value(alias, "SELECT " + call.format(ids=f"ARRAY({ids})"), *parameters, *more)
    return changed


def locate(job: Any) -> tuple[str, int]:
    """Return the alias that a job is changed with, and its primary key. It is given as a ``Job``, an id or a
    ``TaskResult``.

    A string is the public id of a job, as ``TaskResult.id``. An int is a primary key, as in
    ``JobList.ids``, in the database that jobs go to by default.
    """
    if isinstance(job, Changes):
        return write_alias(job), job.pk  # type: ignore[attr-defined]
    if isinstance(job, int) and not isinstance(job, bool):
        return default_backend().home(), parse_id(str(job))[1]
    if not isinstance(job, (str, TaskResult)):
        raise TypeError(
            "Expected a Job, an id, a TaskResult, a queryset of jobs, or an iterable of these, not "
            f"{job!r:.200}."
        )
    if isinstance(job, TaskResult) and not is_ours(backend := resolve(job.backend)):
        raise WrongBackend(
            f"The result {job.id!r} comes from the backend {backend.alias!r}, which is not one of "
            "django_pgqueue."
        )
    public = job if isinstance(job, str) else job.id
    alias, pk = parse_id(public)
    if alias not in connections.settings:
        raise ValueError(f"The id {public!r} names the database {alias!r}, which is not in DATABASES.")
    return alias, pk


def of_one(function: Callable[Concatenate[Any, P], int]) -> Callable[Concatenate[Any, P], bool]:
    """Return the method of ``Job`` for one of the functions."""

    @wraps(function)
    def method(job: Any, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        return bool(function(job, *args, **kwargs))

    return method


def _public(name: str) -> Any:
    """Return a public function. Those are above the models, which they use, so none is imported here."""
    return getattr(import_module(__name__.partition(".")[0]), name)


class Changes:
    """The methods of ``Job`` that other parts of the package provide."""

    @_changing
    def send_event(self, name: str, value: Any = None, /) -> bool:
        """Send the job an event. See ``django_pgqueue.send_event``."""
        return bool(_public("send_event")(self, name, value))

    asend_event = for_async(send_event)

    def why(self) -> Reason:
        """Explain why the job does not run. See ``django_pgqueue.why``."""
        reason: Reason = _public("why")(self)
        return reason

    awhy = for_async(why)


#: What is one thing to change, although a string is an iterable.
_ONE = (Changes, str, bytes, TaskResult, QuerySet)
