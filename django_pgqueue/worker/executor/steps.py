"""The steps of a running job: run each once, record its result, and return that when the job runs again.

A record is one durable call under the lease of the job (``_pgqueue_record_step``). What a job has recorded is
read at its first step, and only if the claim has said that there is something.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from inspect import isawaitable, iscoroutinefunction
from time import monotonic
from typing import Any, NamedTuple, NoReturn

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from ... import conf
from ...encoding import encode_arguments
from ...exceptions import EventTimeout, InvalidJSON, LeaseLost, StepError, Suspended, duration
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.steps import HAS_STEPS, MOST_STEPS, step_name, step_result
from ...postgres import fetch_rows, fetch_value
from ...tasks.task import Task
from .errors import note_step
from .progress import ReportedProgress

logger = get_logger(__name__)

LONGEST_WAIT = 3.1e9  # seconds; a little less than the century that a job may be delayed
_LOAD_SQL = (
    "SELECT name, kind, finished_at IS NOT NULL, inputs, result::text FROM pgqueue_step WHERE job_id = %s"
)
_RECORD_SQL = "SELECT _pgqueue_record_step(%s, %s, %s, %s, %s, %s, %s, %s::jsonb)"
_WAIT_SQL = "SELECT held, kind, ready, result::text, remaining FROM _pgqueue_wait(%s, %s, %s, %s, %s)"


class _Stored(NamedTuple):
    """A row of ``pgqueue_step``."""

    kind: str
    is_finished: bool
    inputs: int | None
    result: str | None


class JobSteps:
    """The steps of one attempt of a job."""

    def __init__(self, row: Claimed, task: Task[..., Any], alias: str, progress: ReportedProgress) -> None:
        self.suspended: Suspended | None = None  # why the job has to wait
        #: The attempts that do not count: a step that this attempt has recorded forgives those before it.
        self.forgiven_attempts = row.forgiven_attempts
        self._row, self._task, self._alias, self._progress = row, task, alias, progress
        self._used: set[str] = set()
        self._recorded = 0
        self.records: set[asyncio.Future[Any]] = set()  # the ones that may be on their way

    def run(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a step, or return its recorded result."""
        self._refuse_transaction("step", name)
        return self._run("step", name, function, args, kwargs)

    def run_atomic(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a step and record it in one transaction of the database of the queue."""
        self._refuse_transaction("atomic_step", name)
        with transaction.atomic(using=self._alias):
            return self._run("atomic_step", name, function, args, kwargs)

    async def arun(self, name: str, function: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        """Await a step, or return its recorded result."""
        if "_stored" not in vars(self):
            await sync_to_async(lambda: self._stored)()
        stored, inputs = self._begin("astep", name, function, args, kwargs)
        if stored is not None:
            return from_text(stored.result)
        began = monotonic()
        with self._failures_of(name):
            awaitable = function(*args, **kwargs)
            if not isawaitable(awaitable):
                raise StepError(
                    f"astep({name!r}, ...) takes a coroutine function. For another function, pass "
                    "sync_to_async(function)."
                )
            value = await awaitable
        # Another step of the job may fail now, which cancels this one. What has run is recorded nevertheless.
        record = asyncio.ensure_future(sync_to_async(self._record)(name, value, monotonic() - began, inputs))
        self.records.add(record)
        return await asyncio.shield(record)

    def _run(self, call: str, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if iscoroutinefunction(function):
            raise StepError(
                f"{call}({name!r}, ...) takes a function. For a coroutine function, await astep()."
            )
        stored, inputs = self._begin(call, name, function, args, kwargs)
        if stored is not None:
            return from_text(stored.result)
        began = monotonic()
        with self._failures_of(name):
            value = function(*args, **kwargs)
        return self._record(name, value, monotonic() - began, inputs)

    def _begin(
        self, call: str, name: str, function: Any, args: Any, kwargs: Any
    ) -> tuple[_Stored | None, int | None]:
        """Return what is recorded of a step, or None if it has to run, and the checksum of its arguments."""
        if not callable(function):
            raise StepError(
                f"{call}({name!r}, ...) takes a function, not {function!r:.100}. Pass the function without "
                "calling it, and then its arguments."
            )
        inputs = _checksum(args, kwargs)
        self._use(call, name)
        stored = self._stored.get(name)
        if stored is None:
            if len(self._stored) + self._recorded >= MOST_STEPS:
                raise StepError(
                    f"{call}({name!r}): the job has {MOST_STEPS:,} steps, which is the limit. "
                    "Let it enqueue jobs."
                )
            self._progress.hear(name, None)
            return None, inputs
        if stored.kind != "step":
            self._refuse_kind(call, name, stored.kind)
        if inputs is not None and stored.inputs is not None and inputs != stored.inputs:
            logger.warning(
                "job %s: the step %r was recorded with other arguments. Its recorded result is used.",
                self._row.id, name,
            )  # fmt: skip
        return stored, inputs

    @contextmanager
    def _failures_of(self, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._used.discard(name)  # it has not been recorded, so the task may try it again
            note_step(error, name)
            raise

    def _record(self, name: str, value: Any, seconds: float, inputs: int | None) -> Any:
        row, is_first, text = self._row, self._recorded == 0, step_result(name, value)
        parameters = (row.id, row.lease, is_first, row.attempts, name, seconds, inputs, text)
        answer = fetch_value(self._alias, _RECORD_SQL, *parameters)
        if answer == "lost":
            self._refuse_lease()
        if answer == "taken":
            self._refuse_kind("step", name, "event")
        self._recorded += 1
        self.forgiven_attempts = max(self.forgiven_attempts, row.attempts - 1)
        return from_text(text)

    def sleep(self, name: str, length: float | timedelta) -> None:
        """Go on when the time has passed. Raises ``Suspended``."""
        self._wait("sleep", name, "sleep", duration("sleep(name, length)", length))

    def receive_event(self, name: str, timeout: float | timedelta | None) -> Any:
        """Return the value of a signal. Raises ``Suspended`` if it has not come yet."""
        seconds = LONGEST_WAIT if timeout is None else duration("receive_event(name, timeout)", timeout)
        return self._wait("receive_event", name, "event", seconds)

    def _wait(self, call: str, name: str, kind: str, seconds: float) -> Any:
        self._refuse_transaction(call, name)
        self._use(call, name)
        stored, row = self._stored.get(name), self._row
        if stored is not None and stored.is_finished:
            return self._over(call, name, kind, stored.kind, stored.result)
        parameters = [row.id, row.lease, name, kind, min(seconds, LONGEST_WAIT)]
        [(held, found, ready, result, remaining)] = fetch_rows(self._alias, _WAIT_SQL, parameters)
        if not held:
            self._refuse_lease()
        if ready or found != kind:
            return self._over(call, name, kind, found, result)
        self._progress.wait_at(name)
        self.suspended = Suspended(kind, name, max(0.0, remaining))
        raise self.suspended

    def _over(self, call: str, name: str, kind: str, found: str, result: str | None) -> Any:
        if found == "timeout" and kind == "event":
            raise EventTimeout(f"The event {name!r} did not come in time.")
        if found != kind:
            self._refuse_kind(call, name, found)
        return from_text(result)

    def check_end(self) -> None:
        """Refuse a return of the task if the job waits, and warn of recorded steps that it did not use."""
        if self.suspended is not None:
            raise StepError(
                f"The job waits for {self.suspended.name!r}, but its task went on and returned. "
                "Let the exception Suspended pass."
            )
        recorded = vars(self).get("_stored", {})  # it is not read for this
        unused = [name for name, step in recorded.items() if step.kind == "step" and name not in self._used]
        if unused:
            logger.warning(
                "job %s did not use the recorded steps %s. Their names have probably changed, so that they "
                "ran again under the new ones.", self._row.id, ", ".join(map(repr, sorted(unused))),
            )  # fmt: skip

    @cached_property
    def _stored(self) -> dict[str, _Stored]:
        if not self._row.marks & HAS_STEPS:
            return {}
        rows = fetch_rows(self._alias, _LOAD_SQL, [self._row.id])
        return {name: _Stored(*rest) for name, *rest in rows}

    def _use(self, call: str, name: str) -> None:
        step_name(f"{call}(name, ...)", name)
        suspended = self.suspended
        if suspended is not None and iscoroutinefunction(self._task.func):
            # Race: another part of the task waits. This one may come here before it is cancelled.
            raise Suspended(suspended.kind, suspended.name, suspended.seconds)
        if suspended is not None:
            raise StepError(
                f"{call}({name!r}): the job waits for {suspended.name!r}, and its task went "
                "on. Let the exception Suspended pass."
            )
        if name in self._used:
            raise StepError(
                f"{call}({name!r}): this attempt has used the name {name!r} before. Give each step a name of "
                "its own, for instance with a number."
            )
        self._used.add(name)

    def _refuse_transaction(self, call: str, name: str) -> None:
        """A step in a transaction could be recorded although its effects are rolled back, or vice versa."""
        if self._task.atomic:
            raise StepError(f"{call}({name!r}): a task with atomic=True is one step. Remove atomic=True.")
        connection = connections[self._alias]
        # A test case runs each test in a transaction of its own.
        blocks: Any = connection.atomic_blocks
        if connection.in_atomic_block and not blocks[-1]._from_testcase:
            raise StepError(
                f"{call}({name!r}) was called in transaction.atomic(). Call it outside, or use "
                "atomic_step(), which runs the step in a transaction together with its record."
            )

    def _refuse_kind(self, call: str, name: str, kind: str) -> NoReturn:
        what = "event" if kind == "timeout" else kind
        raise StepError(f"{call}({name!r}): the job has a {what} with the name {name!r}. Use another name.")

    def _refuse_lease(self) -> NoReturn:
        raise LeaseLost(
            f"Job {self._row.id} was given to another worker while this one ran it. "
            "What this attempt does no longer counts."
        )


def from_text(text: str | None) -> Any:
    """Return what a record says."""
    return None if text is None else json.loads(text)


def _checksum(args: Any, kwargs: Any) -> int | None:
    """Return a checksum of the arguments; None if they are not JSON, which a step allows."""
    try:
        positional, named = encode_arguments(args, kwargs, conf.current().max_json_bytes)
    except InvalidJSON:
        return None
    return zlib.crc32(f"{positional}{named}".encode())
