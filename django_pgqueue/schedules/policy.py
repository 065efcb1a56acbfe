"""The policy of a task as a row of a schedule keeps it, with the keys of the scheduled call.

The round that fires a schedule may run in a supervisor that cannot import the task: another project may use
the same database, so the processes that can import it write its policy into the row: when they synchronize,
and when the schedule is saved. If a user has changed the task or the arguments with SQL since, the round
computes the policy if it can. A job without a policy gets it from the worker that claims it, but no keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS

from .. import conf
from ..compat import InvalidTask
from ..encoding import encode_arguments, encode_metadata
from ..exceptions import InvalidKey, UnknownTask
from ..formatting import get_logger
from ..tasks import options
from ..tasks.call import after_hooks, call_options, prepare
from ..tasks.signatures import check_call
from ..tasks.task import BoundTask, Task, find_task
from .cron import check_jitter, timing_of, zone

logger = get_logger(__name__)


def known_policy(task_path: str, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """Return what the task at a path and the settings say about the jobs of a call, as JSON; None if this
    process cannot import the task.

    ``options`` are as in the SQL functions: the keys. ``problem`` says instead why they cannot be
    computed; then the schedule does not fire.
    """
    call = {"args": args, "kwargs": kwargs}
    try:
        task = find_task(task_path)
    except UnknownTask:
        return None
    try:
        keys = None
        if isinstance(args, list) and isinstance(kwargs, dict):  # SQL may have written others
            task = scheduled_task(task, args, kwargs)
            keys = call_keys(task, args, kwargs)
        return {**stored_policy(task), **call, "options": keys}
    except Exception as error:  # also what a hook of the project raises, which refuses the call
        if not isinstance(error, InvalidKey):
            logger.warning("the schedules of %s do not fire: %s", task.module_path, error)
        return {**stored_policy(task), **call, "problem": str(error) or repr(error)}


def stored_policy(task: Task[..., Any]) -> dict[str, Any]:
    """Return what the task and the settings say about all of its jobs, as JSON."""
    return {
        "task_path": task.module_path,
        "queue_name": task.queue_name,
        "priority": task.priority,
        **task.policy()._asdict(),
        "metadata": json.loads(encode_metadata(task.metadata)),
    }


def scheduled_task(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Task[..., Any]:
    """Return the task of a schedule with the options that the hooks of ``BEFORE_ENQUEUE`` give the call.

    Raise what they raise, and ``ValueError`` if they change what the row of the schedule says itself.
    """
    call = BoundTask(task, tuple(args), kwargs)
    changed = after_hooks(call)
    if changed is call:
        return task
    options = ("module_path", "backend", "database", "run_after", "run_after_delta", "links")
    same = all(getattr(changed.task, name) == getattr(task, name) for name in options)
    if not same or (list(changed.args), changed.kwargs) != (args, kwargs):
        raise ValueError(
            f"A hook of BEFORE_ENQUEUE has changed the task, the arguments, the place or the time of a "
            f"scheduled call of {task.module_path}. It can change other options of a schedule only."
        )
    return changed.task


def problem_of(schedule: Any) -> str:
    """Return why a row cannot fire, as its policy says; "" if it can. That of another call says nothing."""
    policy = schedule.policy or {}
    call = {"task_path": schedule.task_path, "args": schedule.args, "kwargs": schedule.kwargs}
    if any(policy.get(name) != value for name, value in call.items()):
        return ""
    return str(policy.get("problem", ""))


def call_keys(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the ``options`` of a call: its keys. Raise InvalidKey as `enqueue` does.

    A call that is wrong in another way has no keys: its job fails, and says why.
    """
    try:
        options = prepare(call_options(task), args, kwargs).more()
    except InvalidKey:
        raise
    except Exception as error:  # also what a router of the project raises: a supervisor must not end
        logger.debug("%s has no keys: %r", task.module_path, error)
        return None
    return None if options is None else json.loads(options)


def problems(row: Any) -> dict[str, list[str]]:
    """Return what is wrong with a ``Schedule``, each problem for the field that can correct it."""
    timing = "every" if row.cron is None else "cron"
    if (row.cron is None) == (row.every is None):
        timing = NON_FIELD_ERRORS
    return {
        **_first_problem(
            ("timezone", lambda: zone(row.timezone)),
            (timing, lambda: timing_of(row.cron, row.every, row.timezone)),
            ("jitter", lambda: check_jitter(timing_of(row.cron, row.every, row.timezone), row.jitter)),
        ),
        **_first_problem(
            ("args", lambda: _check_type("args", row.args, list, "list")),
            ("kwargs", lambda: _check_type("kwargs", row.kwargs, dict, "object")),
            ("task_path", lambda: find_task(row.task_path)),
            ("args", lambda: check_call(find_task(row.task_path), row.args, row.kwargs)),
            ("args", lambda: call_keys(find_task(row.task_path), row.args, row.kwargs)),
            ("args", lambda: encode_arguments(row.args, row.kwargs, conf.current().max_json_bytes)),
        ),
        **_first_problem(("queue_name", lambda: row.queue_name and options.queue_name(row.queue_name))),
    }


def _first_problem(*checks: tuple[str, Callable[[], object]]) -> dict[str, list[str]]:
    for field, check in checks:
        try:
            check()
        except (TypeError, ValueError, InvalidTask, UnknownTask) as error:
            return {field: [str(error)]}
    return {}


def _check_type(name: str, value: Any, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a JSON {what}. It is {value!r}.")
