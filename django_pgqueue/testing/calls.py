"""``call_task``: run the body of a task as a worker would call it, with a job that exists only in memory.

No database is needed. The arguments travel through JSON, as they do in a row, so the test finds values that a
job cannot have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import async_to_sync, sync_to_async

from .. import conf
from ..context import holding
from ..encoding import encode_arguments, encode_metadata, encode_result
from ..exceptions import EventTimeout, StepError, duration
from ..jobs.claim import Claimed
from ..jobs.current import RUNNING
from ..jobs.steps import step_result
from ..models import Job
from ..models.batch import Parents
from ..models.current import CurrentJob
from ..tasks.call import as_ours
from ..tasks.links import IN_BATCH
from ..tasks.payload import payload_argument
from ..tasks.signatures import check_call
from ..tasks.task import AnyTask, Task
from ..worker.executor import calls
from ..worker.executor.outcomes import BadCall
from ..worker.executor.progress import ProgressWriter
from ..worker.executor.running_job import RunningJob
from ..worker.executor.steps import LONGEST_WAIT, JobSteps, from_text

P = ParamSpec("P")
R = TypeVar("R")
#: The fields of the job, which `fake_job` sets for calls in its block.
_FIELDS: ContextVar[dict[str, Any]] = ContextVar("django_pgqueue.testing.fields", default={})  # noqa: B039
_WORKER = 1
_ALLOWED = (
    "id", "attempts", "forgiven_attempts", "crash_count", "max_attempts", "metadata", "priority",
    "queue_name", "run_after", "enqueued_at", "started_at", "last_attempted_at", "expires_at",
    "timeout", "errors", "group_key", "limit_key", "unique_key", "context",
    "tenant", "batch_id",
)  # fmt: skip


def call_task(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the function of a task here, with a ``current_job()``, and return its value. It needs no database.

    The hooks of ``AROUND_ATTEMPT`` surround it. A task with ``takes_context`` gets a context. An async task
    runs to its end. Exceptions of the task reach the test, also ``RetryLater``, ``Snooze`` and ``CancelJob``.
    There is no retry and no timeout.

    A task with a payload takes an instance of its model, which need not be saved. The job
    has the options of ``task.using(...)``, and ``fake_job(attempts=3)`` sets other fields of it.

    Raise ``TypeError`` for arguments that do not fit, and ``InvalidJSON`` for arguments, or for a result,
    that a job cannot store.
    """
    running = _running(as_ours(task), args, kwargs)
    return cast("R", copy_context().run(_call, running))


async def acall_task(task: AnyTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Like `call_task`, for async code."""
    running = _running(as_ours(task), args, kwargs)
    if not iscoroutinefunction(running.task.func):
        return cast("R", await sync_to_async(copy_context().run)(_call, running))
    return cast("R", await _awaited(running))


@contextmanager
def fake_job(
    *,
    cancel_requested: bool = False,
    events: Mapping[str, Any] | None = None,
    parents: Mapping[int, Any] | None = None,
    **fields: Any,
) -> Iterator[CurrentJob]:
    """In the block, ``current_job()`` returns a job that exists only in memory, with these fields.

    This is for code that tasks call, and sets the fields of the jobs of `call_task`: ``attempts``,
    ``metadata``, ``queue_name``, ``id`` and others. ``cancel_requested``: it was asked to stop. ``events``:
    the values of the events for which it waits, by name. ``parents``: the results of the jobs that it was
    enqueued after, by their ids, or ``Job`` objects. Its steps are only called, and it does not sleep.
    """
    if unknown := sorted(set(fields) - {*_ALLOWED, "task_path", "args", "kwargs"}):
        raise TypeError(f"fake_job() has no field {unknown[0]!r}. The fields are {', '.join(_ALLOWED)}.")
    given = {**fields, "asked_to_stop": cancel_requested, "events": events or {}, "parents": parents or {}}
    running = _FakeRunning(None, _claimed({}, given), given)
    with holding(_FIELDS, given), holding(RUNNING, running):
        yield running.job


class _FakeRunning(RunningJob):
    """A running job without a row."""

    def __init__(self, task: Task[..., Any] | None, row: Claimed, fields: dict[str, Any]) -> None:
        super().__init__(row, cast("Task[..., Any]", task), _WORKER, "default", ProgressWriter())
        self._fields = fields
        if fields.get("asked_to_stop"):
            self.ask_to_stop()

    @cached_property
    def job(self) -> CurrentJob:
        """The job, with the fields that a claim leaves out."""
        job = super().job
        for name in job.get_deferred_fields():
            setattr(job, name, self._fields.get(name))
        return job

    def extend(self, seconds: float | timedelta) -> bool:
        """Accept it: there is no lease to lose."""
        duration("extend(seconds)", seconds)
        return True

    @cached_property
    def parents(self) -> Parents:
        """The parents that the test has given."""
        results, most = {}, conf.current().max_json_bytes
        for key, value in self._fields.get("parents", {}).items():
            if not isinstance(value, Job):  # a job that has returned it
                result = from_text(encode_result(value, most))
                value = Job(id=key, status=Job.Status.DONE, result=result, errors=[])
            results[key] = value
        return Parents(list(results), results, {})

    @cached_property
    def steps(self) -> JobSteps:
        """Steps that are only called."""
        self.has_steps = True
        return FakeSteps(self, self._fields.get("events", {}))


def _running(task: Task[..., Any], args: Any, kwargs: Any) -> RunningJob:
    policy = task.policy()
    payload, encoded = None, ("[]", "{}")
    if task.payload is None:
        encoded = encode_arguments(args, kwargs, conf.current().max_json_bytes)
    else:
        check_call(task, args, kwargs)
        payload = payload_argument(task, args, kwargs)
    options = {
        "task_path": task.module_path,
        **{name: getattr(task, name) for name in ("queue_name", "priority", "group_key", "tenant")},
        **{name: getattr(policy, name) for name in ("max_attempts", "timeout")},
        "metadata": json.loads(encode_metadata(task.metadata)) if task.metadata else {},
    }
    given = _FIELDS.get()
    row = _claimed(options, given)._replace(args=encoded[0], kwargs=encoded[1])
    running = _FakeRunning(task, row, given)
    running.payload = payload
    return running


def _claimed(options: dict[str, Any], given: dict[str, Any]) -> Claimed:
    now = datetime.now(UTC)
    values = {
        "id": 1, "lease": 1, "task_path": "", "args": [], "kwargs": {}, "queue_name": "default",
        "priority": 0, "run_after": now, "attempts": 1, "forgiven_attempts": 0, "max_attempts": None,
        "timeout": None, "on_lost": "rerun", "crash_count": 0, "metadata": {}, "expires_at": None,
        "expired": None, "enqueued_at": now, "started_at": now, "last_attempted_at": now,
        "errors": [], "waited": 0.0, "group_key": None, "context": None, "tenant": None,
        "marks": IN_BATCH if given.get("batch_id") else 0, **options, **given,
    }  # fmt: skip
    return Claimed(**{name: _as_text(values[name]) for name in Claimed._fields})


def _as_text(value: Any) -> Any:
    """Return a value as the server sends it."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value)
    return value.isoformat(" ") if isinstance(value, datetime) else value


def _call(running: RunningJob) -> Any:
    if iscoroutinefunction(running.task.func):
        return async_to_sync(_awaited)(running)
    with _as_called(running):
        return _checked(calls.call_within(running, calls.call_task))


async def _awaited(running: RunningJob) -> Any:
    with _as_called(running):
        return _checked(await calls.await_task(running))


@contextmanager
def _as_called(running: RunningJob) -> Iterator[None]:
    """Raise what a bare call would raise for arguments that do not fit."""
    with holding(RUNNING, running):
        try:
            yield
        except BadCall as error:
            raise (error.__cause__ or error) from None


def _checked(value: Any) -> Any:
    encode_result(value, conf.current().max_json_bytes)
    return value


class FakeSteps(JobSteps):
    """The steps of a job of `call_task`; none is recorded. ``events``: the values of those to wait for."""

    def __init__(self, running: RunningJob, events: Mapping[str, Any]) -> None:
        super().__init__(running.row, running.task, running.alias, running.progress)
        self._events = events

    run_atomic = JobSteps.run

    def _record(self, name: str, value: Any, seconds: float, inputs: int | None) -> Any:
        return from_text(step_result(name, value))

    def _wait(self, call: str, name: str, kind: str, seconds: float) -> Any:
        self._use(call, name)
        if kind == "sleep":
            return None
        if name in self._events:
            return from_text(step_result(name, self._events[name]))
        if seconds < LONGEST_WAIT:
            raise EventTimeout(f"The event {name!r} did not come in time.")
        raise StepError(
            f"receive_event({name!r}): there is no such event, and the wait has no timeout. Pass its value: "
            f"fake_job(events={{{name!r}: ...}})."
        )

    def _refuse_transaction(self, call: str, name: str) -> None:
        """Nothing is recorded that could be rolled back, or the other way round."""
