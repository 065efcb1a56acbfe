"""The policy of a task as a row of a schedule keeps it, with the keys of the scheduled call.

The round that fires a schedule may run in a supervisor that cannot import the task: another project may use
the same database. So the processes that can import it write its policy into the row: when they synchronize,
and when the schedule is saved. If a user has changed the task or the arguments with SQL since, the round
computes the policy if it can. A job without a policy gets it from the worker that claims it, but no keys.
"""

from __future__ import annotations

import json
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
    """Return the policy of the task at a path for a call; None if this process cannot import it."""
    try:
        task = find_task(task_path)
    except UnknownTask:
        return None
    return policy_of(task, args, kwargs)


def policy_of(task: Task[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what the task and the settings say about the jobs of this call, as JSON.

    ``options`` are those of the SQL functions: the keys. ``problem`` says instead why they cannot be
    computed; then the schedule does not fire.
    """
    call = {"args": args, "kwargs": kwargs}
    try:
        task = scheduled_task(task, args, kwargs)
        return {**stored_policy(task), **call, "options": call_keys(task, args, kwargs)}
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


def scheduled_task(task: Task[..., Any], args: Any, kwargs: Any) -> Task[..., Any]:
    """Return the task of a schedule with the options that the hooks of ``BEFORE_ENQUEUE`` give the call.

    Raise what they raise, and ``ValueError`` if they change what the row of the schedule says itself.
    """
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return task
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


def call_keys(task: Task[..., Any], args: Any, kwargs: Any) -> dict[str, Any] | None:
    """Return the ``options`` of a call: its keys. Raise InvalidKey as `enqueue` does.

    A call that is wrong in another way has no keys: its job fails, and says why.
    """
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return None
    try:
        options = prepare(call_options(task), args, kwargs).more()
    except InvalidKey:
        raise
    except Exception as error:  # also what a router of the project raises: a supervisor must not end
        logger.debug("%s has no keys: %r", task.module_path, error)
        return None
    return None if options is None else json.loads(options)


# ----------------------------------------------------------------------------
# What is wrong with a row that someone has entered, by field, for ``Schedule.clean()``.


def problems(row: Any) -> dict[str, list[str]]:
    """Return the problems of a ``Schedule``, each for the field that can correct it."""
    return {field: [text] for field, text in (_timing(row), _call(row), _queue(row)) if text}


def _timing(row: Any) -> tuple[str, str]:
    try:
        zone(row.timezone)
    except ValueError as error:
        return "timezone", str(error)
    try:
        timing = timing_of(row.cron, row.every, row.timezone)
    except ValueError as error:
        if (row.cron is None) == (row.every is None):
            return NON_FIELD_ERRORS, str(error)
        return "every" if row.cron is None else "cron", str(error)
    try:
        check_jitter(timing, row.jitter)
    except ValueError as error:
        return "jitter", str(error)
    return "", ""


def _call(row: Any) -> tuple[str, str]:
    if not isinstance(row.args, list):
        return "args", f"args must be a JSON list. It is {row.args!r}."
    if not isinstance(row.kwargs, dict):
        return "kwargs", f"kwargs must be a JSON object. It is {row.kwargs!r}."
    try:
        task = find_task(row.task_path)
    except UnknownTask as error:
        return "task_path", str(error)
    try:
        check_call(task, row.args, row.kwargs)
        call_keys(task, row.args, row.kwargs)
        encode_arguments(row.args, row.kwargs, conf.current().max_json_bytes)
    except (TypeError, ValueError) as error:
        return "args", str(error)
    return "", ""


def _queue(row: Any) -> tuple[str, str]:
    if row.queue_name is not None:
        try:
            options.queue_name(row.queue_name)
        except InvalidTask as error:
            return "queue_name", str(error)
    return "", ""
