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

from ..exceptions import RetryLater, Snooze

F = TypeVar("F", bound=Callable[..., Any])
Hints: TypeAlias = Mapping[str, str | Callable[[Any], str]]
"""What to write in place of each word: a text, in which ``{value}`` is the value; or a function of it."""


def hints(table: Hints, name: str = "") -> Callable[[F], F]:
    """Decorate a function or a class, so that its error for a keyword of the table names our word."""

    def decorate(function: F) -> F:
        if isinstance(function, type):
            function.__init__ = hints(table, function.__name__)(function.__init__)  # type: ignore[misc]
            return function

        def raise_hint(given: Mapping[str, Any]) -> None:
            # The function has no such parameter, so this is what is wrong. A right call costs nothing.
            owner = name or function.__qualname__
            if found := [remedy(owner, table, word, given[word]) for word in given if word in table]:
                raise TypeError(" ".join(found)) from None

        if iscoroutinefunction(function):

            @wraps(function)
            async def hinted(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await function(*args, **kwargs)
                except TypeError:
                    raise_hint(kwargs)
                    raise
        else:

            @wraps(function)
            def hinted(*args: Any, **kwargs: Any) -> Any:
                try:
                    return function(*args, **kwargs)
                except TypeError:
                    raise_hint(kwargs)
                    raise

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


def _table(text: str) -> dict[str, str]:
    """Read lines such as ``words of others -> ours``."""
    rows = (line.split(" -> ", 1) for line in text.strip().splitlines())
    return {word: ours for words, ours in rows for word in words.split()}


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

#: For both ``@task()`` and ``task.using()``.
_POLICY: Hints = _table("""
    at_front -> priority=100
    queue routing_key cluster queues exchange -> queue_name={value}
    time_limit soft_time_limit job_timeout -> timeout={value}; it is in seconds
    expires expires_time ttl max_age -> expires_after={value}
    headers meta description -> metadata={{...}}
    connection broker producer -> database=..., an alias in DATABASES
    result_ttl result_expires -> PGQUEUE['RETENTION'], or the retention of the Queue
    failure_ttl -> PGQUEUE['FAILED_RETENTION']
    link hook on_success depends_on -> enqueue(other.using(after=job), ...)
    link_error on_failure -> enqueue(other.using(after=job, if_failed='run'), ...)
    task_id job_id -> it without this option: ids are given by the database
    serializer compression -> it without this option: arguments are JSON
    ignore_result store_results save -> it without this option: the result is kept with the job
    track_started cached -> it without this option: the result is kept with the job
    name actor_name task_name aliases -> it without this option: a task is found by the path of its function
    using -> database={value}
""")

#: For ``task.using()``.
CALL: Hints = {
    **_POLICY,
    **_table("""
    eta schedule_at scheduled_at run_at defer_until -> run_after={value}
    concurrency_key -> limit_key={value}
    retry retry_policy -> max_attempts=...
    repeat -> @schedule(...) above @task
    args kwargs task_kwargs -> enqueue(task.using(...), ...), which takes the arguments
    chain chord -> chain([...]), or after=...
    sync -> call(...), which runs the function here
    concurrency -> @task(concurrency=...): it is declared, not set for one call
    rate_limit -> @task(rate_limit=...): it is declared, not set for one call
    backoff retry_delay min_backoff max_backoff -> @task(backoff=...): it is declared, not set for one call
    retry_on retry_when autoretry_for -> @task(retry_on=...): it is declared, not set for one call
    fail_on throws -> @task(fail_on=...): it is declared, not set for one call
    atomic -> @task(atomic=...): it is declared, not set for one call
    on_lost -> @task(on_lost=...): it is declared, not set for one call
    capture_logs -> @task(capture_logs=...): it is declared, not set for one call
    takes_context -> @task(takes_context=...): it is declared, not set for one call
    payload -> @task(payload=...): it is declared, not set for one call
    group_id -> batch=...
    parent_id root_id -> after=...
    q_options -> these options as keywords of using()
    group -> group_key={value}; or batch=..., for jobs that belong together
    lock -> limit_key={value}; with @task(concurrency=1)
    queueing_lock -> unique_key={value}
    skip_if_running -> unique=Unique(scope='live')
"""),
    **dict.fromkeys(("countdown", "delay", "schedule_in", "defer_by"), _after),
    **dict.fromkeys(("retries", "max_retries"), _one_more),
}

#: For ``@task()``.
DECLARATION: Hints = {
    **_POLICY,
    **_table("""
    attempts max_tries -> max_attempts={value}
    autoretry_for retry_when retry_exceptions -> retry_on={value}
    throws dont_autoretry_for -> fail_on={value}
    retry_backoff default_retry_delay retry_delay min_backoff max_backoff -> backoff=...
    retry_kwargs retry_policy -> max_attempts=... and backoff=...
    retry_jitter retry_backoff_max -> it without this option: the default backoff has jitter
    bind context -> current_job() in the task
    pass_context -> takes_context=True, or current_job() in the task
    lock single_instance -> concurrency=1
    queueing_lock unique_key unique_for once -> unique=True, or unique=Unique(...)
    concurrency_key limit_key key -> concurrency=Concurrency(1, key=...)
    group_key -> group={value}
    run_after countdown eta delay -> enqueue(task.using(run_after=...), ...)
    batch -> enqueue(task.using(batch=...), ...)
    after if_failed -> enqueue(task.using(after=...), ...)
    cron crontab schedule periodic repeat -> @schedule(cron=...) above @task
    every run_every -> @schedule(every=...) above @task
    typing pydantic -> it without this option: arguments are checked when a call is enqueued
    base -> a function: tasks have no classes
    acks_late -> it without this option: a job is done when its task has returned
    reject_on_worker_lost retry_on_worker_lost -> on_lost=...
"""),
    **dict.fromkeys(("retries", "max_retries", "retry"), _one_more),
    "rate": lambda value: f"rate_limit={rate_hint(value)}",
}

#: For ``Unique()``.
UNIQUE: Hints = _table("""
    by on fields keys unique_on args -> key={value}
    for_ ttl timeout period expires lock_expiry -> window={value}
    states until -> scope='waiting' or scope='live'
    raise_on_duplicate -> on_conflict='raise'
""")

#: For ``Concurrency()``.
LIMITED: Hints = _table("""
    max n to max_concurrency slots -> Concurrency({value})
    on_conflict -> on_full={value}
    by -> key={value}
""")

#: For ``RateLimit()``.
RATE: Hints = _table("""
    starts rate max n -> RateLimit({value}, per=...)
    period seconds duration interval -> per={value}
    by -> key={value}
""")

#: For ``@schedule()``.
SCHEDULE: Hints = _table("""
    crontab cron_expression -> cron={value}
    minute hour day_of_week day_of_month month_of_year -> cron='30 6 * * *', which has five fields
    seconds run_every interval period -> every={value}
    minutes -> every=timedelta(minutes={value})
    hours -> every=timedelta(hours={value})
    days -> every=timedelta(days={value})
    schedule schedule_type -> cron=... or every=...
    next_run repeats run_at schedule_at -> enqueue(task.using(run_after=...), ...) for what runs once
    schedule_in -> enqueue(task.using(run_after=...), ...) for what runs once
    lock queueing_lock -> overlap='skip' or overlap='queue'
    task func -> @schedule(...) above @task: it is for the task below it
    tz -> timezone={value}
    periodic_id -> name={value}
    task_kwargs -> kwargs={value}
    queue cluster -> queue_name={value}
""")

#: For ``pause()`` and ``resume()``.
PAUSE: Hints = _table("""
    queue_name queues -> queue={value}
    task_path task_name -> task={value}
    all -> everything=True
    by user -> author={value}
    seconds timeout delay -> duration={value}
    database -> using={value}
""")

#: For ``set_limit()`` and ``reset_limit()``.
LIMIT: Hints = {
    **_table("""
    queue_name -> queue={value}
    task_path task_name -> task={value}
    all -> everything=True
    running limit max global_limit -> concurrency={value}
    starts per burst -> rate_limit=RateLimit(..., per=...)
    on_conflict -> on_full={value}
    database -> using={value}
"""),
    "rate": lambda value: f"rate_limit={rate_hint(value)}",
}

#: For ``RetryLater()`` and ``Snooze()``.
BATCH: Hints = _table("""
    on_complete on_success on_finish callback then -> enqueue(task.using(after=batch), ...) in the block
    tasks jobs calls -> batch.add([task.bind(...)]) in the block
    database -> using={value}
    description -> name={value}
""")

LATER: Hints = _table("""
    countdown after seconds retry_delay -> delay={value}
    eta at schedule_at -> until={value}
    max_retries -> @task(max_attempts=...)
    exc -> raise RetryLater(...) from {value}
    args kwargs -> it without this option: the arguments of a job stay as they are
""")
for _exception in (RetryLater, Snooze):
    hints(LATER)(_exception)


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
        if word == "run_after":
            ours = _after(value)  # a number is refused there
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


class Habits(_Attributes):
    """What a task says if it is used like one of another queue."""

    __slots__ = ()

    if not TYPE_CHECKING:
        #: Django's templates call what is callable.
        do_not_call_in_templates = True
        _habits = _table("""
            delay delay_on_commit send defer perform_later -> enqueue({name}, ...)
            apply_async apply_async_on_commit send_with_options configure -> enqueue({name}.using(...), ...)
            options schedule set -> enqueue({name}.using(...), ...)
            s si signature subtask map starmap batch_defer message -> enqueue_many({name}.bind(...) for ...)
            message_with_options -> enqueue_many({name}.bind(...) for ...)
            link link_error on_error then -> enqueue(other.using(after=job), ...)
            chunks replace add_to_chord -> chain([{name}.bind(...), ...]), or a Batch
            adelay defer_async -> await aenqueue({name}, ...)
            batch_defer_async -> await aenqueue_many({name}.bind(...) for ...)
            apply run call_local fn -> {name}.call(...)
            retry -> raise RetryLater(delay) in the task
            request -> current_job() in the task
            update_state -> current_job().set_progress(done, total) in the task
            AsyncResult -> {name}.get_result(id)
            name actor_name full_path -> {name}.module_path
            max_retries retries -> {name}.max_attempts
            time_limit soft_time_limit -> {name}.timeout
            expires -> {name}.expires_after
            default_retry_delay -> {name}.backoff
            throws -> {name}.fail_on
            revoke -> pause(task={name})
            restore -> resume(task={name})
            on_success on_failure after_return -> a receiver of the signal task_finished
        """)

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
        _habits = _table("""
            delay apply_async defer send apply -> enqueue(call)
            adelay defer_async -> await aenqueue(call)
            set options configure clone -> call.using(...)
            link on_error link_error then -> enqueue(other.using(after=job))
            schedule -> enqueue(call.using(run_after=...))
            batch_defer batch_defer_async map -> enqueue_many([...])
            call_local run -> call.call()
            name -> call.task.module_path
        """)

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
        _habits = _table("""
            get wait fetch get_result get_raw_result -> job.join(), then job.status and job.result
            ready done is_done finished is_ready -> job.is_finished
            successful success succeeded is_successful -> job.status == 'done'
            failed is_failed -> job.status == 'failed'
            is_revoked is_canceled is_cancelled -> job.status == 'cancelled'; in its task, cancel_requested
            is_stopped -> job.status == 'cancelled'
            check_cancelled check_canceled is_aborted -> current_job().cancel_requested in its task
            update_state update_progress -> current_job().set_progress(done, total) in its task
            state get_status is_queued is_started is_scheduled is_deferred -> job.status
            abort_requested -> job.cancel_requested
            revoke abort terminate stop kill -> job.cancel()
            requeue restore -> job.retry()
            reschedule -> job.edit(run_after=...)
            return_value info latest_result results -> job.result
            traceback exception error exc_info last_error throw maybe_throw maybe_reraise -> job.errors
            date_done ended_at stopped -> job.finished_at
            started -> job.started_at
            time_taken -> job.duration
            ttl -> job.expires_at
            eta scheduled_at -> job.run_after
            created_at -> job.enqueued_at
            task_id uuid job_id get_id -> job.id
            task name task_name func func_name actor_name -> job.task_path
            queue origin -> job.queue_name
            retries attempt_count -> job.attempts
            task_kwargs args_kwargs -> job.args and job.kwargs
            meta get_meta -> job.metadata
            worker_id worker_name -> job.worker
            lock -> job.limit_key
            queueing_lock -> job.unique_key
            refresh arefresh reload -> job.refresh_from_db()
            then hook -> enqueue(other.using(after=job), ...)
            forget cleanup -> nothing: finished jobs are removed after PGQUEUE['RETENTION']
            parent parents dependency collect -> job.parent_ids
            batch group -> job.batch_id
            children -> Job.objects.filter(parent_ids__contains=[job.id])
            retries_left -> job.max_attempts - job.attempts
            result_group group_result fetch_group get_group_count -> a Batch
            description save_meta -> job.metadata, which using(metadata=...) sets
        """)

        def _has_no(self, name: str, ours: str) -> str:
            return f"A job has no {name!r}. Write {ours}."


class BatchHabits(_Attributes):
    """What a batch says if it is used like the group of another queue."""

    if not TYPE_CHECKING:
        _habits = _table("""
            enqueue add_task add_job append apply_async delay submit -> batch.add([task.bind(...)])
            then on_complete on_success callback chord link -> enqueue(task.using(after=batch), ...)
            wait wait_for -> batch.join()
            results -> current_job().parents.results in a job after the batch
            ready done is_done completed -> batch.is_finished
            status state -> batch.outcome
            revoke abort terminate -> batch.cancel()
            retry -> batch.retry_failed()
            using -> batch.database
            completed_count failed_count size total -> batch.counts()
        """)

        def _has_no(self, name: str, ours: str) -> str:
            return f"A batch has no {name!r}. Write {ours}."


class ResultHabits(_Attributes):
    """What the result of ``task.enqueue()`` says if it is used like that of another queue, or like a job."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _habits = _table("""
            get wait fetch get_raw_result -> result.join(), then result.status and result.return_value
            ready done is_done finished is_ready -> result.is_finished
            successful success succeeded -> result.status == TaskResultStatus.SUCCESSFUL
            failed is_failed -> result.status == TaskResultStatus.FAILED
            state get_status is_revoked -> result.status
            revoke abort terminate cancel -> result.job.cancel()
            retry requeue restore -> result.job.retry()
            reschedule -> result.job.edit(run_after=...)
            result info -> result.return_value
            traceback exception error throw maybe_throw maybe_reraise -> result.errors
            name -> result.task.module_path
            queue -> result.task.queue_name
            worker -> result.worker_ids
            then -> enqueue(other.using(after=result.job), ...)
            forget -> nothing: finished jobs are removed after PGQUEUE['RETENTION']
            parent collect -> result.job.parent_ids
            date_done ended_at -> result.finished_at
            task_id uuid job_id -> result.id
            retries -> result.attempts
            edit -> result.job.edit(...)
            run_now -> result.job.run_now(...)
            extend -> result.job.extend(...)
            send_event -> result.job.send_event(...)
            why -> result.job.why(...)
        """)

        def _has_no(self, name: str, ours: str) -> str:
            return f"A result has no {name!r}. Write {ours}."


# ----------------------------------------------------------------------------
# What is imported from this package.

_PATHS = [
    f"{module}.{name}"
    for module, names in (
        ("django.tasks", "TaskContext TaskResult TaskResultStatus"),
        ("django_pgqueue.models", "JobBatch JobQuerySet Limit Pause Queue ScheduleRun Step Worker"),
        ("django_pgqueue.exceptions", "InvalidJSON InvalidKey TooManyCrashes UnknownTask"),
        ("django_pgqueue.exceptions", "WorkerLost"),
        ("django_pgqueue.testing", "assert_enqueued assert_not_enqueued call_task immediate_jobs run_jobs"),
    )
    for name in names.split()
]
ELSEWHERE: Mapping[str, str] = {
    **_table("""
    shared_task actor async_task job db_task -> task
    Celery app current_app App Blueprint Huey -> task: there is no app
    cron crontab periodic_task db_periodic_task periodic scheduled_job -> schedule
    group chord pipeline -> Batch
    signature Signature subtask Message -> BoundTask: task.bind(...) returns one
    defer delay enqueue_in enqueue_at AsyncTask -> enqueue
    async_iter bulk_enqueue enqueue_all chunks xmap xstarmap -> enqueue_many
    Chain async_chain -> chain
    AsyncResult Result JobResult fetch result get_result -> Job
    Retry RetryStrategy BaseRetryStrategy RetryDecision RetryTask -> RetryLater
    Ignore Reject CancelExecution -> CancelJob
    revoke abort -> cancel
    get_task_logger -> logging.getLogger
    rate_limit -> RateLimit
    current_task get_current_job get_current_task -> current_job
    """),
    **{path.rpartition(".")[2]: path for path in _PATHS},
}
"""Names of other queues, and of our other modules, each with what to use."""

TESTING: Mapping[str, str] = _table("""
    capture_jobs captured_jobs capture_tasks enqueued_jobs -> enqueued
    drain drain_queue run_all run_job run_pending work -> run_jobs
    eager always_eager task_always_eager immediate -> immediate_jobs
    run_worker worker start_worker -> running_worker
    freeze_time time_machine -> travel
""")
"""Names that people look for in ``django_pgqueue.testing``, each with what to use."""
