"""Answer what people who know other queues type out of habit, with our word for it.

``send.delay(5)``, ``@task(retries=3)``, ``job.get()``: without this, Python says that there is no such name.
A word that is in no table keeps Python's own error. ``tests/tasks/test_habits.py`` tries all words of the
other queues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

__all__ = [
    "CALL", "DECLARATION", "ELSEWHERE", "LATER", "LIMIT", "LIMITED", "PAUSE", "RATE", "SCHEDULE", "UNIQUE",
    "CallHabits", "Habits", "JobHabits", "ResultHabits", "hint_of_call", "hints", "rate_hint", "remedy",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Hints: TypeAlias = Mapping[str, str | Callable[[Any], str]]
"""What to write in place of each word: a text, in which ``{value}`` is the value; or a function of it."""


def hints(table: Hints, name: str = "") -> Callable[[F], F]:
    """Decorate a function or a class, so that its error for a keyword of the table names our word."""

    def decorate(function: F) -> F:
        if isinstance(function, type):
            function.__init__ = hints(table, function.__name__)(function.__init__)  # type: ignore[misc]
            return function

        def explained(error: TypeError, given: Mapping[str, Any]) -> TypeError:
            # The function has no such parameter, so this is what is wrong. A right call costs nothing.
            owner = name or function.__qualname__
            found = [remedy(owner, table, word, given[word]) for word in given if word in table]
            return TypeError(" ".join(found)) if found else error

        if iscoroutinefunction(function):

            @wraps(function)
            async def hinted(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await function(*args, **kwargs)
                except TypeError as error:
                    raise explained(error, kwargs) from error.__cause__
        else:

            @wraps(function)
            def hinted(*args: Any, **kwargs: Any) -> Any:
                try:
                    return function(*args, **kwargs)
                except TypeError as error:
                    raise explained(error, kwargs) from error.__cause__

        return hinted  # type: ignore[return-value]

    return decorate


def remedy(owner: str, table: Hints, word: str, value: Any) -> str:
    """Return the sentences that say what to write in place of a keyword."""
    return f"{owner}() has no {word}=. Write {_ours(table, word, value)}."


def _ours(table: Hints, word: str, value: Any) -> str:
    ours = table[word]
    return ours(value) if callable(ours) else ours.format(value=_shown(value))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "<" not in text else "..."


def _same(text: str, *words: str) -> dict[str, str]:
    return dict.fromkeys(words, text)


def _one_more(retries: Any) -> str:
    if isinstance(retries, int) and not isinstance(retries, bool):
        return f"max_attempts={retries + 1}; it counts the first attempt"
    return "max_attempts=...; it counts the first attempt"


def _after(seconds: Any) -> str:
    """Return our words for a delay: a number of seconds, a timedelta, or the parts of one."""
    if isinstance(seconds, Mapping):
        return f"run_after=timedelta({', '.join(f'{part}={value!r}' for part, value in seconds.items())})"
    is_number = isinstance(seconds, (int, float))
    return f"run_after={f'timedelta(seconds={seconds!r})' if is_number else _shown(seconds)}"


_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def rate_hint(value: Any) -> str:
    """Return our words for a rate such as Celery's ``"100/m"``; a number of it is per second."""
    found = re.fullmatch(r"\s*(\d+)\s*(?:/\s*([smhd])[a-z]*\s*)?", str(value))
    if found is None or isinstance(value, bool):
        return "RateLimit(100, per=60)"
    return f"RateLimit({int(found[1])}, per={_PERIODS[found[2] or 's']})"


# ----------------------------------------------------------------------------
# Keywords.

_NEEDLESS = "it without this option"
_AFTER_ALL = "enqueue(other.using(after=job), ...)"
_DECLARED = "@task({}=...): it is declared, not set for one call"

_POLICY: Hints = {
    **_same("queue_name={value}", "queue", "routing_key", "cluster", "queues"),
    **_same("timeout={value}; it is in seconds", "time_limit", "soft_time_limit", "job_timeout"),
    **_same("expires_after={value}", "expires", "ttl", "max_age"),
    **_same("metadata={{...}}", "headers", "meta"),
    **_same("PGQUEUE['RETENTION'], or the retention of the Queue", "result_ttl", "result_expires"),
    **_same("PGQUEUE['FAILED_RETENTION']", "failure_ttl"),
    **_same(_AFTER_ALL, "link", "hook", "on_success", "depends_on"),
    **_same("enqueue(other.using(after=job, if_failed='run'), ...)", "link_error", "on_failure"),
    **_same(_NEEDLESS + ": ids are given by the database", "task_id", "job_id"),
    **_same(_NEEDLESS + ": arguments are JSON", "serializer", "compression"),
    **_same(_NEEDLESS + ": results are kept with the job", "ignore_result", "store_results", "save"),
    "using": "database={value}",
}

#: For ``task.using()``.
CALL: Hints = {
    **_POLICY,
    **dict.fromkeys(("countdown", "delay", "schedule_in", "defer_by"), _after),
    **_same("run_after={value}", "eta", "schedule_at", "scheduled_at", "run_at", "defer_until"),
    **_same("limit_key={value}", "concurrency_key"),
    **dict.fromkeys(("retries", "max_retries"), _one_more),
    **_same("max_attempts=...", "retry", "retry_policy"),
    **_same("priority=100", "at_front"),
    **_same("enqueue(task.using(...), ...), which takes the arguments", "args", "kwargs", "task_kwargs"),
    **_same("chain([...]), or after=...", "chain", "chord"),
    **_same("call(...), which runs the function here", "sync"),
    **{
        word: _DECLARED.format(word)
        for word in ("concurrency", "rate_limit", "backoff", "retry_on", "fail_on", "atomic", "on_lost")
    },
    "group": "group_key={value}; or batch=..., for jobs that belong together",
    "lock": "limit_key={value}; with @task(concurrency=1)",
    "queueing_lock": "unique_key={value}",
    "skip_if_running": "unique=Unique(scope='live')",
}

#: For ``@task()``.
DECLARATION: Hints = {
    **_POLICY,
    **dict.fromkeys(("retries", "max_retries", "retry"), _one_more),
    **_same("max_attempts={value}", "attempts", "max_tries"),
    **_same("retry_on={value}", "autoretry_for", "retry_when", "retry_exceptions"),
    **_same("fail_on={value}", "throws", "dont_autoretry_for"),
    **_same(
        "backoff=...", "retry_backoff", "default_retry_delay", "retry_delay", "min_backoff", "max_backoff"
    ),
    **_same("max_attempts=... and backoff=...", "retry_kwargs", "retry_policy"),
    **_same(_NEEDLESS + ": the default backoff has jitter", "retry_jitter", "retry_backoff_max"),
    **_same("current_job() in the task", "bind", "context"),
    **_same("takes_context=True, or current_job() in the task", "pass_context"),
    **_same("rate_limit=...", "rate"),
    **_same("concurrency=1", "lock", "single_instance"),
    **_same("unique=True, or unique=Unique(...)", "queueing_lock", "unique_key", "unique_for", "once"),
    **_same("concurrency=Concurrency(1, key=...)", "concurrency_key", "limit_key", "key"),
    **_same("group={value}", "group_key"),
    **_same("enqueue(task.using(run_after=...), ...)", "run_after", "countdown", "eta", "delay"),
    **_same("@schedule(cron=...) above @task", "cron", "crontab", "schedule", "periodic"),
    **_same("@schedule(every=...) above @task", "every", "run_every"),
    **_same(_NEEDLESS + ": a task is found by the path of its function", "name", "actor_name"),
    **_same(_NEEDLESS + ": a job is done when its task has returned", "acks_late"),
    **_same("on_lost=...", "reject_on_worker_lost", "retry_on_worker_lost"),
    "rate": lambda value: f"rate_limit={rate_hint(value)}",
}

#: For ``Unique()``.
UNIQUE: Hints = {
    **_same("key={value}", "by", "on", "fields", "keys", "unique_on", "args"),
    **_same("window={value}", "for_", "ttl", "timeout", "period", "expires", "lock_expiry"),
    **_same("scope='waiting' or scope='live'", "states", "until"),
    **_same("on_conflict='raise'", "raise_on_duplicate"),
}

#: For ``Concurrency()``.
LIMITED: Hints = {
    **_same("Concurrency({value})", "max", "n", "to", "max_concurrency", "slots"),
    **_same("on_full={value}", "on_conflict"),
    **_same("key={value}", "by"),
}

#: For ``RateLimit()``.
RATE: Hints = {
    **_same("RateLimit({value}, per=...)", "starts", "rate", "max", "n"),
    **_same("per={value}", "period", "seconds", "duration", "interval"),
    **_same("key={value}", "by"),
}

#: For ``@schedule()``.
SCHEDULE: Hints = {
    **_same("cron={value}", "crontab", "cron_expression"),
    **_same("cron='30 6 * * *', which has five fields", "minute", "hour", "day_of_week", "day_of_month"),
    **_same("every={value}", "seconds", "run_every", "interval", "period"),
    **_same("every=timedelta(minutes={value})", "minutes"),
    **_same("every=timedelta(hours={value})", "hours"),
    **_same("every=timedelta(days={value})", "days"),
    **_same("cron=... or every=...", "schedule", "schedule_type"),
    **_same("enqueue(task.using(run_after=...), ...) for what runs once", "next_run", "repeats", "run_at"),
    **_same("timezone={value}", "tz"),
    **_same("name={value}", "periodic_id"),
    **_same("kwargs={value}", "task_kwargs"),
    **_same("queue_name={value}", "queue", "cluster"),
}

#: For ``pause()`` and ``set_limit()``.
PAUSE: Hints = {
    **_same("queue={value}", "queue_name", "queues"),
    **_same("task={value}", "task_path", "task_name"),
    **_same("everything=True", "all"),
    **_same("author={value}", "by", "user"),
    **_same("duration={value}", "seconds", "timeout", "delay"),
    **_same("using={value}", "database"),
}
LIMIT: Hints = {
    **_same("queue={value}", "queue_name"),
    **_same("task={value}", "task_path", "task_name"),
    **_same("everything=True", "all"),
    **_same("concurrency={value}", "running", "limit", "max", "global_limit"),
    **_same("rate_limit=RateLimit(..., per=...)", "starts", "per", "burst"),
    **_same("on_full={value}", "on_conflict"),
    **_same("using={value}", "database"),
    "rate": lambda value: f"rate_limit={rate_hint(value)}",
}

#: For ``RetryLater()`` and ``Snooze()``.
LATER: Hints = {
    **_same("delay={value}", "countdown", "after", "seconds", "retry_delay"),
    **_same("until={value}", "eta", "at", "schedule_at"),
    **_same("@task(max_attempts=...)", "max_retries"),
    **_same("raise RetryLater(...) from {value}", "exc"),
}


def hint_of_call(
    name: str,
    options: Container[str],
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    takes: Container[str],
) -> str:
    """Return what to write if keywords of a call that its function does not take are options, ours or those
    of another queue; "" if none is.
    """
    given: list[str] = []
    texts: list[str] = []
    arguments = [_argument(value) for value in args]
    for word, value in kwargs.items():
        if word in takes or (word not in options and word not in CALL):
            arguments.append(f"{word}={_argument(value)}")
            continue
        ours = f"{word}={_shown(value)}" if word in options else _ours(CALL, word, value)
        option, _, remark = ours.partition("; ")
        if re.match(r"\w+=", option):
            given.append(option)
            texts += [f"{option}: {remark}."] if remark else []
        else:
            texts.append(f"In place of {word}=, write {ours}.")
    if given:
        call = ", ".join([f"{name}.using({', '.join(given)})", *arguments])
        texts.insert(0, f"Options go before the arguments: enqueue({call}).")
    return " ".join(texts)


def _argument(value: Any) -> str:
    # Errors are logged, and other values may be secret, or long.
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else "..."


# ----------------------------------------------------------------------------
# Attributes, and the call of a task.


class _Attributes:
    """Says for an attribute that another queue has what to write."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers must refuse these
        _habits = {}

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that does not exist. If another queue has it, name ours."""
            if name in self._habits and not hasattr(type(self), name):
                raise AttributeError(self._has_no(name, self._habits[name]), name=name, obj=self)
            # Raises Python's own error; or that of a property, which must not look like a missing name.
            return object.__getattribute__(self, name)


_ENQUEUE = "enqueue({name}, ...)"
_USING = "enqueue({name}.using(...), ...)"
_BIND = "enqueue_many({name}.bind(...) for ...)"
_CANVAS = "chain([{name}.bind(...), ...]), or a Batch"


class Habits(_Attributes):
    """What a task says if it is used like one of another queue."""

    __slots__ = ()

    if not TYPE_CHECKING:
        #: Django's templates call what is callable.
        do_not_call_in_templates = True
        _habits = {
            **_same(_ENQUEUE, "delay", "delay_on_commit", "send", "defer", "perform_later"),
            **_same(
                _USING,
                "apply_async",
                "apply_async_on_commit",
                "send_with_options",
                "configure",
                "options",
                "schedule",
                "set",
            ),
            **_same(
                _BIND,
                "s",
                "si",
                "signature",
                "subtask",
                "map",
                "starmap",
                "batch_defer",
                "message",
                "message_with_options",
            ),
            **_same("enqueue(other.using(after=job), ...)", "link", "link_error", "on_error", "then"),
            **_same(_CANVAS, "chunks", "replace", "add_to_chord"),
            **_same("await aenqueue({name}, ...)", "adelay", "defer_async"),
            **_same("await aenqueue_many({name}.bind(...) for ...)", "batch_defer_async"),
            **_same("{name}.call(...)", "apply", "run", "call_local", "fn"),
            "retry": "raise RetryLater(delay) in the task",
            "request": "current_job() in the task",
        }

        def _has_no(self, name: str, ours: str) -> str:
            path = self.module_path
            return f"The task {path} has no {name!r}. Write {ours.format(name=path.rpartition('.')[2])}."

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse the call, and name the two that may be meant."""
            name = self.func.__name__
            raise TypeError(
                f"{self.module_path} is a task, which cannot be called like a function. To let a worker run "
                f"it, write enqueue({name}, ...). To run it now, write {name}.call(...)."
            )


class CallHabits(_Attributes):
    """What a call says if it is used like one of another queue."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _habits = {
            **_same("enqueue(call)", "delay", "apply_async", "defer", "send", "apply"),
            **_same("await aenqueue(call)", "adelay", "defer_async"),
            **_same("call.using(...)", "set", "options", "configure", "clone"),
            **_same("enqueue(other.using(after=job))", "link", "on_error", "link_error", "then"),
        }

        def _has_no(self, name: str, ours: str) -> str:
            return f"A call has no {name!r}. Write {ours}."

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse it."""
            raise TypeError(
                f"This is a call of {self.task.module_path}. To let a worker run it, write enqueue(call)."
            )


class JobHabits(_Attributes):
    """What a job says if it is used like the result or the job of another queue."""

    if not TYPE_CHECKING:
        _habits = {
            **_same("job.join(), then job.status and job.result", "get", "wait", "fetch", "latest"),
            **_same("job.is_finished", "ready", "done", "is_done", "finished"),
            **_same("job.status == 'done'", "successful", "success", "succeeded", "is_successful"),
            **_same("job.status == 'failed'", "failed", "is_failed"),
            **_same("job.status", "state", "get_status", "is_queued", "is_started"),
            **_same("job.cancel()", "revoke", "abort", "terminate", "stop", "kill"),
            **_same("job.retry()", "requeue", "reschedule"),
            **_same("job.result", "return_value", "info", "latest_result"),
            **_same("job.errors", "traceback", "exception", "error", "exc_info", "last_error"),
            **_same("job.finished_at", "date_done", "ended_at", "stopped"),
            **_same("job.run_after", "eta", "scheduled_at"),
            **_same("job.enqueued_at", "created_at"),
            **_same("job.id", "task_id", "uuid", "job_id"),
            **_same("job.task_path", "task", "task_name", "func", "func_name", "actor_name"),
            **_same("job.queue_name", "queue", "origin"),
            **_same("job.attempts", "retries", "attempt_count"),
            **_same("job.metadata", "meta"),
            **_same("job.refresh_from_db()", "refresh", "reload"),
            **_same("job.parent_ids", "parent", "parents", "dependency"),
            **_same("job.batch_id", "batch", "group"),
        }

        def _has_no(self, name: str, ours: str) -> str:
            return f"A job has no {name!r}. Write {ours}."


class ResultHabits(_Attributes):
    """What the result of ``task.enqueue()`` says if it is used like that of another queue, or like a job."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _habits = {
            **_same("result.join(), then result.status and result.return_value", "get", "wait", "fetch"),
            **_same("result.is_finished", "ready", "done", "is_done", "finished"),
            **_same("result.status == TaskResultStatus.SUCCESSFUL", "successful", "success", "succeeded"),
            **_same("result.status == TaskResultStatus.FAILED", "failed", "is_failed"),
            **_same("result.status", "state", "get_status"),
            **_same("result.job.cancel()", "revoke", "abort", "terminate", "cancel"),
            **_same("result.job.retry()", "retry", "requeue"),
            **_same("result.return_value", "result", "info"),
            **_same("result.errors", "traceback", "exception", "error"),
            **_same("result.finished_at", "date_done", "ended_at"),
            **_same("result.id", "task_id", "uuid", "job_id"),
            **_same("result.attempts", "retries"),
            **{
                f"{word}": f"result.job.{word}(...)"
                for word in ("edit", "run_now", "extend", "send_event", "why")
            },
        }

        def _has_no(self, name: str, ours: str) -> str:
            return f"A result has no {name!r}. Write {ours}."


# ----------------------------------------------------------------------------
# What is imported from this package.

ELSEWHERE: Mapping[str, str] = {
    **_same("task", "shared_task", "actor", "async_task", "job", "db_task", "Celery", "app", "Huey"),
    **_same("schedule", "cron", "crontab", "periodic_task", "db_periodic_task", "periodic", "scheduled_job"),
    **_same("Batch", "group", "chord", "pipeline", "JobBatch"),
    **_same("BoundTask, which task.bind(...) returns", "signature", "Signature", "subtask", "Message"),
    **_same("enqueue", "defer", "delay", "enqueue_in", "enqueue_at", "AsyncTask"),
    **_same("enqueue_many", "async_iter", "bulk_enqueue", "enqueue_all"),
    **_same("chain", "Chain", "async_chain"),
    **_same("Job", "AsyncResult", "Result", "JobResult", "fetch", "result"),
    **_same("RetryLater", "Retry", "RetryStrategy", "RetryTask"),
    **_same("CancelJob", "Ignore", "Reject", "CancelExecution"),
    **_same("cancel", "revoke", "abort"),
    **_same("RateLimit", "Rate", "rate_limit"),
    **_same("EventTimeout", "WaitTimeout"),
    **_same("current_job", "current_task", "get_current_job", "get_current_task"),
}
"""Names of other queues, each with our name for it."""
