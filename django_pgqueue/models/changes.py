"""Change existing jobs: the statements, for ids or a queryset, and the methods of ``Job`` for one job.

The methods are the public functions, so that ``job.cancel()`` and ``cancel(job)`` never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import QuerySet

from ..compat import InvalidTask, for_async
from ..tasks import options as validation

if TYPE_CHECKING:
    from ..explanation import Reason

#: ``{ids}`` in a statement stands for an array of ids. Each returns how many jobs it changed.
CANCEL = "SELECT pgqueue_cancel_v1({ids})"
RETRY = "SELECT pgqueue_retry_v1({ids}, %s)"
RUN_NOW = "SELECT pgqueue_run_now_v1({ids})"
EXTEND = "SELECT count(*) FROM pgqueue_extend_v1({ids}, %s)"
EDIT = "SELECT pgqueue_edit_v1({ids}, %s::integer, %s::timestamptz, %s::double precision, %s)"


def change_ids(statement: str, alias: str, ids: list[int], *more: Any) -> int:
    """Run the statement on the jobs with these ids in the database ``alias``."""
    return _run(alias, statement.format(ids="%s::bigint[]"), [ids, *more])


def change_all(statement: str, jobs: QuerySet[Any], *more: Any) -> int:
    """Run the statement on the jobs of a queryset, in the database that the router selects for writing."""
    jobs._for_write = True  # type: ignore[attr-defined]  # so that .db asks the router where to write
    alias = jobs.db
    query = jobs.values("pk").query
    if not (query.is_sliced or query.select_for_update):  # rows are locked in the requested order
        query.clear_ordering(force=True)
    try:
        ids, parameters = query.get_compiler(alias).as_sql()
    except EmptyResultSet:
        return 0
    return _run(alias, statement.format(ids=f"ARRAY({ids})"), [*parameters, *more])


def edit_values(priority: Any, run_after: Any, queue_name: Any) -> tuple[Any, ...]:
    """Return the parameters of ``EDIT``. None leaves a value as it is.

    Raise ``TypeError`` if there is nothing to change or a value has the wrong type, and ``ValueError`` for
    another bad value.
    """
    if priority is None and run_after is None and queue_name is None:
        raise TypeError("edit() changes nothing: give it a priority, run_after or queue_name.")
    try:
        moment, delay = validation.run_after(run_after)
        return (
            None if priority is None else validation.priority(priority),
            moment,
            None if delay is None else delay.total_seconds(),
            None if queue_name is None else validation.queue_name(queue_name),
        )
    except InvalidTask as error:
        raise ValueError(f"edit(): {error}") from None


def _run(alias: str, query: str, parameters: Sequence[Any]) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(query, parameters)
        changed: int = cursor.fetchone()[0]
    return changed


def _public(name: str) -> Any:
    """Return a public function. Those are above the models, which they use, so none is imported here."""
    return getattr(import_module(__name__.partition(".")[0]), name)


class Changes:
    """The methods of ``Job`` that change it. Each returns whether it did, and leaves the object as it was
    read: ``refresh_from_db()`` reads the change.
    """

    def cancel(self) -> bool:
        """Cancel the job. See ``django_pgqueue.cancel``."""
        return bool(_public("cancel")(self))

    acancel = for_async(cancel)

    def retry(self, *, done: bool = False) -> bool:
        """Run the job again, now; a done one only with ``done=True``. See ``django_pgqueue.retry``."""
        return bool(_public("retry")(self, done=done))

    aretry = for_async(retry)

    def run_now(self) -> bool:
        """Run the job now if it waits for a later time. See ``django_pgqueue.run_now``."""
        return bool(_public("run_now")(self))

    arun_now = for_async(run_now)

    def edit(
        self,
        *,
        priority: int | None = None,
        run_after: datetime | timedelta | None = None,
        queue_name: str | None = None,
    ) -> bool:
        """Change the job while it waits. See ``django_pgqueue.edit``."""
        return bool(_public("edit")(self, priority=priority, run_after=run_after, queue_name=queue_name))

    aedit = for_async(edit)

    def extend(self, duration: float | timedelta) -> bool:
        """Let the running job run this much longer from now. See ``django_pgqueue.extend``."""
        return bool(_public("extend")(self, duration))

    aextend = for_async(extend)

    def send_event(self, name: str, value: Any = None, /) -> bool:
        """Send the job an event. See ``django_pgqueue.send_event``."""
        return bool(_public("send_event")(self, name, value))

    asend_event = for_async(send_event)

    def why(self) -> Reason:
        """Explain why the job does not run. See ``django_pgqueue.why``."""
        reason: Reason = _public("why")(self)
        return reason

    awhy = for_async(why)

    _method: Any
    for _method in (
        cancel, acancel, retry, aretry, run_now, arun_now, edit, aedit, extend, aextend, send_event,
        asend_event,
    ):  # fmt: skip
        _method.alters_data = True  # not in templates
    del _method
