"""Declare schedules: ``@schedule`` above a task, and ``PGQUEUE["SCHEDULES"]``.

Both are validated as far as possible without a database: the decorator when the module is imported, the
settings by a system check. Modules with tasks import this while apps load, so it imports no models.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

from django.conf import ENVIRONMENT_VARIABLE

from .. import conf
from ..compat import InvalidTask
from ..encoding import encode_arguments
from ..exceptions import InvalidJSON
from ..tasks import options as validation
from ..tasks.misuse import check_names, hints
from ..tasks.signatures import check_call
from ..tasks.task import Task
from .cron import check_jitter, timing_of

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "queue"]

MOST_CAUGHT_UP = 10_000
_MOST_BYTES = 2**28
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A schedule as code or settings declare it. The fields are those of `models.Schedule`."""

    name: str
    task_path: str
    source: Literal["code", "settings"]
    declared_by: str
    """The module of the task, or the settings module."""
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    overlap: Overlap = "allow"
    jitter: timedelta = timedelta(0)
    queue_name: str | None = None
    priority: int | None = None


@hints
def schedule(
    cron: str | None = None,
    *,
    every: timedelta | float | None = None,
    timezone: str = "UTC",
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    catch_up: CatchUp = "latest",
    catch_up_limit: int = 100,
    overlap: Overlap = "allow",
    jitter: timedelta | float = 0,
    queue_name: str | None = None,
    priority: int | None = None,
) -> Callable[[AnyTask], AnyTask]:
    """Enqueue a task at certain times: write this above ``@task``. The task itself does not change.

    When: either `cron` (five fields, or ``"@daily"`` and its like) in the time zone `timezone`, or `every`
    (a timedelta or seconds). What: `args` and `kwargs` of the call; `queue_name` and `priority`, if they
    differ from those of the task. A task with several schedules needs a `name` for each; the default is the
    path of the task.

    `catch_up`: what happens to runs that passed while no worker was there: "skip", run the "latest", or
    "all" up to `catch_up_limit`. `overlap`: what happens to a run while the previous job of the schedule is
    not over: "allow", "skip" the run, or "queue" it. `jitter`: each job starts up to this much later, at
    random.

    Raise InvalidTask for values that could never work, and for a name that is declared twice.
    """

    if isinstance(cron, Task) or inspect.isfunction(cron):
        raise InvalidTask('@schedule needs a time: write @schedule("0 3 * * *") or @schedule(every=...).')

    def declare(task: AnyTask) -> AnyTask:
        if not isinstance(task, Task):
            raise InvalidTask(f"@schedule needs a task, not {task!r}. Write @schedule above @task.")
        path = task.module_path
        try:
            declaration = _read(
                path if name is None else name,
                path,
                {
                    "cron": cron, "every": every, "timezone": timezone, "args": args, "kwargs": kwargs,
                    "catch_up": catch_up, "catch_up_limit": catch_up_limit, "overlap": overlap,
                    "jitter": jitter, "queue_name": queue_name, "priority": priority,
                },
                source="code",
                declared_by=task.func.__module__,
            )  # fmt: skip
            check_call(task, declaration.args, declaration.kwargs)
        except (TypeError, ValueError, InvalidTask) as error:
            raise InvalidTask(f"The schedule {name or path!r} of {path} is wrong: {error}") from error
        _register(task, declaration)
        return task

    return declare


def declared_schedules() -> dict[str, Declaration]:
    """Return the schedules that the imported modules declare, by name."""
    return {name: declaration for name, (_, declaration) in _declared.items()}


def schedules_in_settings() -> tuple[dict[str, Declaration], dict[str, str]]:
    """Return the schedules of ``PGQUEUE["SCHEDULES"]``, and what is wrong with the others, by name."""
    good: dict[str, Declaration] = {}
    wrong: dict[str, str] = {}
    module = settings_module()
    for name, given in conf.current().schedules.items():
        options = {key: value for key, value in given.items() if key != "task"}
        try:
            good[name] = _read(name, given["task"], options, source="settings", declared_by=module)
        except (TypeError, ValueError, InvalidTask) as error:
            wrong[name] = str(error)
    return good, wrong


def settings_module() -> str:
    """Return the name of the settings module, which tells the settings of several projects apart."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "")


#: The declarations of ``@schedule`` by name, each with its task.
_declared: dict[str, tuple[Task[..., Any], Declaration]] = {}


def _register(task: Task[..., Any], declaration: Declaration) -> None:
    before, _ = _declared.get(declaration.name, (None, None))
    # Another object at the same path: its module was imported again.
    if before is not None and (before is task or before.module_path != task.module_path):
        raise InvalidTask(
            f"The schedule {declaration.name!r} is declared twice, for {before.module_path} and for "
            f"{task.module_path}. Give each schedule another name: @schedule(name=...)."
        )
    _declared[declaration.name] = (task, declaration)


def _read(
    name: Any,
    task_path: str,
    options: Mapping[str, Any],
    *,
    source: Literal["code", "settings"],
    declared_by: str,
) -> Declaration:
    """Return the declaration. Raise ValueError, TypeError or InvalidTask if a value could never work."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"name must be 1 to 200 letters, digits, '_', '-', '.' or ':'. It is {str(name)[:250]!r}."
        )
    check_names("schedule", options, inspect.signature(schedule).parameters.keys() - {"name"})
    values = {key: value for key, value in options.items() if value is not None}
    timing = timing_of(values.pop("cron", None), values.pop("every", None), values.pop("timezone", "UTC"))
    jitter = _duration("jitter", values.pop("jitter", 0))
    check_jitter(timing, jitter)
    args, kwargs = _arguments(values.pop("args", ()), values.pop("kwargs", {}))
    if "queue_name" in values:
        validation.queue_name(values["queue_name"])
    if "priority" in values:
        values["priority"] = validation.priority(values["priority"])
    _one_of("catch_up", values.get("catch_up", "latest"), ("skip", "latest", "all"))
    _one_of("overlap", values.get("overlap", "allow"), ("allow", "skip", "queue"))
    limit = values.get("catch_up_limit", 1)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_CAUGHT_UP:
        raise ValueError(
            f"catch_up_limit must be a whole number from 1 to {MOST_CAUGHT_UP}. It is {limit!r}."
        )
    return Declaration(
        name=name,
        task_path=task_path,
        source=source,
        declared_by=declared_by,
        cron=timing.cron,
        every=timing.every,
        timezone=timing.timezone,
        jitter=jitter,
        args=args,
        kwargs=kwargs,
        **values,
    )


def _arguments(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as they come back from JSON."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"args must be a list or a tuple. It is {args!r}.")
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs must be a dict. It is {kwargs!r}.")
    try:
        first, second = encode_arguments(list(args), dict(kwargs), _MOST_BYTES)
    except InvalidJSON as error:
        raise ValueError(str(error)) from None
    return json.loads(first), json.loads(second)


def _duration(name: str, value: Any) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            return timedelta(seconds=value)
    if not isinstance(value, timedelta):
        raise ValueError(f"{name} must be seconds or a timedelta. It is {value!r}.")
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(
            f"{name} must be {', '.join(map(repr, known[:-1]))} or {known[-1]!r}. It is {value!r}."
        )
