"""What holds jobs back: pauses and limits, which change at run time, whatever the code declares. Each runs
one statement, in the caller's transaction, and the workers hear of it at the commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django.db.models import BooleanField, F, Func, QuerySet
from django.db.models.expressions import RawSQL
from django.db.utils import DataError

from .. import conf
from ..compat import InvalidTask, for_async, is_task
from ..exceptions import ShardsFailed, duration as seconds, moment
from ..models import Limit, Pause, Worker
from ..postgres import fetch_value, sql_of
from ..postgres.aliases import write_alias
from ..postgres.ask import ask_all
from ..redaction import names_of_call
from ..tasks import options
from ..tasks.keys import KEY_LENGTH, OnFull, RateLimit, limit_name, name_problem
from ..tasks.misuse import hints, rate_hint
from ..tasks.options import is_whole
from ..tasks.routing import default_backend
from ..tasks.task import AnyTask, adopt

T = TypeVar("T")

_LONGEST_NAME = 255  # of a pause
_ARGUMENT = re.compile(r"(\S+) (?:kwargs\.(\w+)|args\.(\d{1,4}))=.*", re.DOTALL)


@hints
def pause(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    everything: bool = False,
    group: str | None = None,
    limit_key: str | None = None,
    argument: str | None = None,
    reason: str = "",
    author: str = "",
    until: datetime | None = None,
    duration: float | timedelta | None = None,
    using: str | None = None,
) -> Pause:
    """Pause a queue, a task, everything, or some jobs. Running jobs finish; workers start no more of these.

    Which jobs: of a ``group``; with a ``limit_key``, such as ``"crm/acme"``; or of a task with the value of
    an ``argument``: ``"shop.tasks.sync kwargs.tenant=acme"``. The value is a text, a number
    or a boolean, as the admin shows it. Raise ``ValueError`` if it is redacted.

    When it ends by itself: ``until``, a datetime, or ``duration``, seconds or a timedelta from now. A second
    pause of the same target replaces the first. ``using``: the alias of the database; by default, that of the
    default backend.

    Raise ``TypeError`` unless exactly one target is given, and ``ValueError`` for a bad value.
    """
    kind, name = paused_target(
        "pause", queue=queue, task=task, everything=everything, group=group, limit_key=limit_key,
        argument=argument,
    )  # fmt: skip
    for what, text, most in (("reason", reason, 400), ("author", author, 150)):
        if not isinstance(text, str) or len(text) > most or "\0" in text:
            raise ValueError(f"pause({what}=...) takes up to {most} characters, not {text!r:.100}.")
    alias = using or default_backend().home()
    moment, delay = _end(until, duration, alias)
    statement = "SELECT pgqueue_pause(%s, %s, %s, %s, %s::timestamptz, %s * interval '1 second')"
    pk = fetch_value(alias, statement, kind, name, reason, author, moment, delay)
    return Pause.objects.using(alias).get(pk=pk)


@hints
def resume(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    everything: bool = False,
    group: str | None = None,
    limit_key: str | None = None,
    argument: str | None = None,
    using: str | None = None,
) -> bool:
    """End the pause of one of the targets of `pause`. Return whether it was paused.

    Each pause is ended alone. ``resume(everything=True)`` does not resume a queue that was paused, too. Raise
    ``TypeError`` unless exactly one target is given, and ``ValueError`` for a bad value.
    """
    kind, name = paused_target(
        "resume", queue=queue, task=task, everything=everything, group=group, limit_key=limit_key,
        argument=argument,
    )  # fmt: skip
    alias = using or default_backend().home()
    return bool(fetch_value(alias, "SELECT pgqueue_resume(%s, %s)", kind, name))


def checked_target(function: str, **given: Any) -> tuple[str, Any]:
    """Return the one target that is given: which it is, and its value. Raise TypeError or ValueError."""
    chosen = [(which, value) for which, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise TypeError(f"{function}() takes exactly one of {'=, '.join(given)}=.")
    ((which, value),) = chosen
    try:
        if which == "queue":
            options.queue_name(value)
        elif which == "task" and not is_task(value):
            options.task_path(value)
    except InvalidTask as error:
        raise ValueError(f"{function}(): {error}") from None
    return which, value


def paused_target(function: str, **given: Any) -> tuple[str, str]:
    """Return the kind and the name of what is to be paused or resumed. Raise TypeError or ValueError."""
    which, value = checked_target(function, **given)
    if which == "everything":
        return "all", ""
    if which in {"group", "limit_key"} and not (isinstance(value, str) and 0 < len(value) <= KEY_LENGTH):
        raise ValueError(f"{function}({which}=...) takes 1 to {KEY_LENGTH} characters, not {value!r:.200}.")
    if which == "argument" and (problem := argument_problem(value)):
        raise ValueError(f"{function}(argument=...) {problem}")
    return which, value.module_path if is_task(value) else value


def argument_problem(target: Any) -> str:
    """Return what is wrong with the argument whose jobs are to be paused; empty if nothing is."""
    match = _ARGUMENT.fullmatch(target) if isinstance(target, str) else None
    if match is None or len(target) > _LONGEST_NAME or "\0" in target:
        return f"takes a text such as 'shop.tasks.sync kwargs.tenant=acme', not {target!r:.200}."
    path, name, place = match.groups()
    try:
        options.task_path(path)
    except InvalidTask as error:
        return f"begins with the path of a task: {error}"
    if conf.current().redact.hide(name or names_of_call(path).at(int(place))):
        return "takes no argument that is redacted: whether a job is paused would reveal its value."
    return ""


def _end(until: Any, period: Any, alias: str) -> tuple[datetime | None, float | None]:
    """Return the time, or the seconds from now, after which the pause ends."""
    if until is not None and period is not None:
        raise TypeError("pause() takes until=... or duration=..., not both.")
    if period is not None:
        delay = seconds("pause(duration=...)", period)
        if not delay:
            raise ValueError("pause(duration=...) must be more than 0 seconds.")
        return None, delay
    if until is None:
        return None, None
    until = moment("pause(until=...)", until)
    ahead = fetch_value(alias, "SELECT date_part('epoch', %s::timestamptz - clock_timestamp())", until)
    if not 0 < ahead <= options.CENTURY.total_seconds():
        raise ValueError(f"pause(until=...) must be in the future, within 100 years. It is {until!r}.")
    return until, None


def on_shards(change: Callable[..., T], /, **given: Any) -> dict[str, T]:
    """Make a change on all shards: ``on_shards(pause, queue="mail")``. Return its results, by alias.

    ``change``: `pause`, `resume`, `set_limit`, `reset_limit`, or a function with ``using=`` that may be
    repeated. The shards are asked side by side, for 2 seconds each, and each commits for itself. Raise
    `ShardsFailed` if some did not answer; one that was too slow may have changed. Without ``SHARDS``, the
    change is made in the database of the default backend.
    """
    shards = conf.current().shards or (default_backend().home(),)
    answers = ask_all(shards, lambda alias: change(**given, using=alias), keep=True)
    if answers.failed:
        raise ShardsFailed(str(answers), answers.given, answers.failed)
    return answers.given


class Unchanged:
    """The default of what stays as it is: None means that there is no such limit."""

    def __repr__(self) -> str:
        return "<unchanged>"


UNCHANGED: Final = Unchanged()


@hints
def set_limit(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    name: str | None = None,
    everything: bool = False,
    concurrency: int | Unchanged | None = UNCHANGED,
    rate_limit: RateLimit | Unchanged | None = UNCHANGED,
    on_full: OnFull | Unchanged = UNCHANGED,
    using: str | None = None,
) -> Limit:
    """Set how many jobs may run at once, or start in a period. The change takes effect within a second.

    The target is one of: a ``queue``; a ``task`` (or its path), for its jobs or for each of its keys; the
    ``name`` of a ``Concurrency`` or ``RateLimit``; or ``everything``. ``concurrency`` jobs may run at once,
    and as many may start as the ``rate_limit`` says, which has no key and no name here. ``on_full``: how to
    treat a job that finds no room. Omitted values stay as they are, and None means no such limit. ``using``:
    the alias of the database.

    The declaration in the code does not change this limit anymore, until `reset_limit`. Running jobs are not
    stopped. Raise ``TypeError`` or ``ValueError`` for a limit that makes no sense, such as 0. To let no job
    start, pause the queue or the task.
    """
    target = _target("set_limit", queue=queue, task=task, name=name, everything=everything)
    _check(target, concurrency, rate_limit, on_full)
    alias = using or default_backend().home()
    write_limit(target, concurrency, rate_limit, on_full, using=alias)
    return Limit.objects.using(alias).get(pk=target)


@hints
def reset_limit(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    name: str | None = None,
    everything: bool = False,
    using: str | None = None,
) -> bool:
    """Restore the limit that the code declares, or none, after `set_limit`. Return whether it differed."""
    target = _target("reset_limit", queue=queue, task=task, name=name, everything=everything)
    return clear_limit(target, using=using or default_backend().home())


def write_limit(
    name: str,
    concurrency: int | Unchanged | None,
    rate_limit: RateLimit | Unchanged | None,
    on_full: str | Unchanged,
    *,
    using: str,
) -> None:
    """Write a limit that was checked."""
    given = rate_limit if isinstance(rate_limit, RateLimit) else None
    rate = (given.limit, given.per, given.burst) if given else (None, None, None)
    fetch_value(
        using,
        "SELECT pgqueue_set_limit(%s, %s, %s::integer, %s, %s::integer, %s::interval, %s::integer, %s, %s)",
        *target_of(name), concurrency if isinstance(concurrency, int) else None,
        on_full if isinstance(on_full, str) else None, *rate, concurrency is None, rate_limit is None,
    )  # fmt: skip


def clear_limit(name: str, *, using: str) -> bool:
    """Let the limit that is stored under a name be again what the code declares, or none."""
    return bool(fetch_value(using, "SELECT pgqueue_reset_limit(%s, %s)", *target_of(name)))


def target_of(stored: str) -> tuple[str, str]:
    """Return the kind and the name of a stored limit, as ``pgqueue_set_limit`` takes them."""
    if stored == "*":
        return "all", ""
    return "queue" if stored.startswith("queue:") else "limit", stored.removeprefix("queue:")


def _target(function: str, **given: Any) -> str:
    """Return the name under which the limit is stored."""
    which, value = checked_target(function, **given)
    if which == "queue":
        return f"queue:{value}"
    if which == "everything":
        return "*"
    if which == "name" and (problem := name_problem(value)):
        raise ValueError(f"{function}(name=...) {problem} It is {value!r}.")
    return limit_name(adopt(value)) if is_task(value) else str(value)


def _check(target: str, concurrency: Any, rate_limit: Any, on_full: Any) -> None:
    """Raise TypeError or ValueError unless the limit makes sense."""
    if concurrency is UNCHANGED and rate_limit is UNCHANGED and on_full is UNCHANGED:
        raise TypeError("set_limit() takes concurrency=, rate_limit= or on_full=. See also reset_limit().")
    if concurrency is not UNCHANGED and concurrency is not None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int):
            raise TypeError(f"set_limit(concurrency=...) takes a whole number or None, not {concurrency!r}.")
        if not is_whole(concurrency):
            raise ValueError(
                f"set_limit(concurrency=...) takes a whole number of at least 1, not {concurrency}. To let "
                "no job start, pause the queue or the task."
            )
    if rate_limit is not UNCHANGED and rate_limit is not None:
        if not isinstance(rate_limit, RateLimit):
            raise TypeError(
                f"set_limit(rate_limit=...) takes a RateLimit: write {rate_hint(rate_limit)}, not "
                f"{rate_limit!r}."
            )
        if rate_limit.key is not None or rate_limit.name is not None:
            raise ValueError("The RateLimit of set_limit() has no key and no name: the target says which.")
        if on_full is not UNCHANGED and on_full != "wait":
            raise ValueError("Jobs always wait for a rate: leave out on_full.")
    if on_full is not UNCHANGED and on_full not in ("wait", "cancel_new", "cancel_old"):
        raise ValueError(f"on_full must be 'wait', 'cancel_new' or 'cancel_old', not {on_full!r}.")
    if on_full not in (UNCHANGED, "wait") and (target == "*" or target.startswith("queue:")):
        raise ValueError("Jobs always wait for the limit of a queue or of all jobs: leave out on_full.")


class RateLimiter:
    """The rate of a name and a key, for application code: ``RateLimiter("crm", tenant).take()``.

    ``task_or_name``: the name of a ``RateLimit`` or of ``set_limit(name=...)``, or a task. ``key``: the value
    of the key; "": all share the rate. Jobs with the same key and this code use the same starts. ``using``:
    the alias of the database, which is read only by the methods. Raise ``ValueError`` for a bad name or key.
    """

    def __init__(
        self, task_or_name: str | AnyTask[..., Any], key: str | int = "", *, using: str | None = None
    ) -> None:
        name: Any = limit_name(adopt(task_or_name)) if is_task(task_or_name) else task_or_name
        if problem := name_problem(name):
            raise ValueError(f"The name of a rate {problem} It is {name!r}.")
        value = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
        if not isinstance(value, str) or "\0" in value or len(name) + 1 + len(value) > KEY_LENGTH:
            raise ValueError(
                "The key of a rate must be a string, or a whole number, and have at most "
                f"{KEY_LENGTH} characters with the name of the rate. It is {key!r:.200}."
            )
        self.name: str = name
        self.key: str = value
        self._using = using

    def __repr__(self) -> str:
        return f"RateLimiter({self.name!r}, {self.key!r})"

    def take(self, n: int = 1) -> bool:
        """Take `n` starts, and return True; or return False if so many are not allowed now.

        In a transaction, other callers and the jobs of the key wait until it ends. Raise ``ValueError`` if
        there is no such rate, or if its burst is less than `n`.
        """
        return self._ask(n, only_look=False) == 0

    def seconds_until(self, n: int = 1) -> float:
        """Return the seconds until `n` starts will be allowed if no one takes them; 0: now. Take nothing."""
        return self._ask(n, only_look=True)

    atake = for_async(take)

    aseconds_until = for_async(seconds_until)

    def _ask(self, n: int, *, only_look: bool) -> float:
        if not is_whole(n):
            raise ValueError(f"The number of starts to take must be a whole number of at least 1, not {n!r}.")
        alias = self._using or default_backend().home()
        try:
            # In a transaction, it holds the lock of the key: a rollback gives the starts back, and no other
            # session may have learned meanwhile that they are used.
            statement = "SELECT pgqueue_take_rate(%s, %s, %s::integer, %s)"
            return float(fetch_value(alias, statement, self.name, self.key, n, only_look))
        except DataError as error:
            # The function refuses what makes no sense, and says how to mend it.
            raise ValueError(str(error).splitlines()[0]) from error


#: Reads the ids. It takes the key four times.
SQL = sql_of(__file__, "keyed_jobs")


def with_key(jobs: QuerySet[Any], key: str) -> QuerySet[Any]:
    """Return the live ones that hold a slot of this key, wait for one, or have it as unique key."""
    # An array: with a subquery, PostgreSQL would read all jobs from the newest one on.
    ids = RawSQL(f"ARRAY({SQL})", [key] * 4)  # noqa: S611 - a constant
    is_one = Func(F("pk"), ids, template="%(expressions)s", arg_joiner=" = ANY ", output_field=BooleanField())
    return jobs.filter(is_one, shelf=0)


def drain_worker(worker: Worker | int, /, *, replace: bool = True, using: str | None = None) -> bool:
    """Ask a worker process to finish its jobs and end, as SIGTERM does. Return whether it is registered.

    ``worker``: a row of ``Worker``, or its id. Its supervisor starts a new process in its place; with
    ``replace=False``, the supervisor and all of its processes end. A worker in another language has no
    supervisor, so it ends in both cases. The request cannot be taken back. ``using``: the alias of the
    database; by default, that of the row, or of the default backend.

    Raise ``TypeError`` or ``ValueError`` for a bad value.
    """
    pk = worker.pk if isinstance(worker, Worker) else worker
    if isinstance(pk, bool) or not isinstance(pk, int):
        raise TypeError(f"drain_worker(worker) takes a Worker or its id, not {pk!r:.100}.")
    if not -(2**63) <= pk < 2**63:
        raise ValueError(f"drain_worker(worker): {pk} is not the id of a worker, which has 64 bits.")
    if not isinstance(replace, bool):
        raise TypeError(f"drain_worker(replace=...) takes True or False, not {replace!r:.100}.")
    alias = using or (write_alias(worker) if isinstance(worker, Worker) else default_backend().home())
    return bool(fetch_value(alias, "SELECT pgqueue_drain_worker(%s, %s)", pk, replace))


apause = for_async(pause)
aresume = for_async(resume)
aon_shards = for_async(on_shards)
aset_limit = for_async(set_limit)
areset_limit = for_async(reset_limit)
adrain_worker = for_async(drain_worker)
