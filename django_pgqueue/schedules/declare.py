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
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

from django.conf import ENVIRONMENT_VARIABLE

from .. import conf
from ..compat import InvalidTask
from ..encoding import encode_arguments
from ..exceptions import InvalidJSON
from ..tasks import options
from ..tasks.misuse import check_names, hints
from ..tasks.signatures import check_call
from ..tasks.task import Task
from .cron import as_timedelta, check_jitter, timing_of

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "queue"]

MOST_CAUGHT_UP = 10_000
_MOST_BYTES = 2**28
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")

AnyTask = TypeVar("AnyTask", bound=Task[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A schedule as code or settings declare it. It has the fields of `models.Schedule`."""

    name: str
    task_path: str
    source: Literal["code", "settings"]
    declared_by: str
    """The module of the task, or the settings module."""
    cron: str | None = None
    every: timedelta | float | None = None
    timezone: str = "UTC"
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    overlap: Overlap = "allow"
    jitter: timedelta | float = timedelta(0)
    queue_name: str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError, TypeError or InvalidTask if a value could never work."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "name must be 1 to 200 letters, digits, '_', '-', '.' or ':'. "
                f"It is {str(self.name)[:250]!r}."
            )
        timing = timing_of(self.cron, self.every, self.timezone)
        jitter = as_timedelta(self.jitter)
        if not isinstance(jitter, timedelta):
            raise options.wrong("jitter", "seconds or a timedelta", jitter)
        check_jitter(timing, jitter)
        options.one_of("catch_up", self.catch_up, "skip", "latest", "all")
        options.one_of("overlap", self.overlap, "allow", "skip", "queue")
        limit = self.catch_up_limit
        if not options.is_whole(limit) or limit > MOST_CAUGHT_UP:
            raise options.wrong("catch_up_limit", f"a whole number from 1 to {MOST_CAUGHT_UP}", limit)
        if isinstance(self.args, (str, bytes)) or not isinstance(self.args, Sequence):
            raise TypeError(f"args must be a list or a tuple. It is {self.args!r}.")
        if not isinstance(self.kwargs, Mapping):
            raise TypeError(f"kwargs must be a dict. It is {self.kwargs!r}.")
        try:
            arguments = encode_arguments(list(self.args), dict(self.kwargs), _MOST_BYTES)
        except InvalidJSON as error:
            raise ValueError(str(error)) from None
        args, kwargs = map(json.loads, arguments)  # as they come back from JSON
        values: dict[str, Any] = {"every": timing.every, "jitter": jitter, "args": args, "kwargs": kwargs}
        if self.queue_name is not None:
            options.queue_name(self.queue_name)
        if self.priority is not None:
            values["priority"] = options.priority(self.priority)
        for name, value in values.items():
            object.__setattr__(self, name, value)


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
    """Enqueue a task at certain times. Write this above ``@task``. The task itself does not change.

    When: either `cron` (five fields, or ``"@daily"`` and its like) in the time zone `timezone`, or `every` (a
    timedelta or seconds). Which call: `args` and `kwargs`; `queue_name` and `priority`, if they differ from
    the ones of the task. A task with several schedules needs a `name` for each; the default is the path of
    the task.

    `catch_up`: how to treat runs that passed while no worker was there: "skip", run the "latest", or "all" up
    to `catch_up_limit`. `overlap`: how to treat a run while the previous job of the schedule has not
    finished: "allow", "skip" the run, or "queue" it. `jitter`: each job starts up to this much later, at
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
            declaration = Declaration(
                name=path if name is None else name, task_path=path, source="code",
                declared_by=task.func.__module__, cron=cron, every=every, timezone=timezone, args=args,
                kwargs={} if kwargs is None else kwargs, catch_up=catch_up, catch_up_limit=catch_up_limit,
                overlap=overlap, jitter=jitter, queue_name=queue_name, priority=priority,
            )  # fmt: skip
            check_call(task, declaration.args, declaration.kwargs)
        except (TypeError, ValueError, InvalidTask) as error:
            raise InvalidTask(f"The schedule {name or path!r} of {path} is wrong: {error}") from error
        before, _ = _declared.get(declaration.name, (None, None))
        # Another object at the same path: its module was imported again.
        if before is not None and (before is task or before.module_path != path):
            raise InvalidTask(
                f"The schedule {declaration.name!r} is declared twice, for {before.module_path} and for "
                f"{path}. Give each schedule another name: @schedule(name=...)."
            )
        _declared[declaration.name] = (task, declaration)
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
        try:
            options = {key: value for key, value in given.items() if key != "task"}
            check_names("schedule", options, inspect.signature(schedule).parameters.keys() - {"name"})
            values = {key: value for key, value in options.items() if value is not None}
            good[name] = Declaration(
                name=name, task_path=given["task"], source="settings", declared_by=module, **values
            )
        except (TypeError, ValueError, InvalidTask) as error:
            wrong[name] = str(error)
    return good, wrong


def settings_module() -> str:
    """Return the name of the settings module, which distinguishes the settings of several projects."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "")


#: The declarations of ``@schedule`` by name, each with its task.
_declared: dict[str, tuple[Task[..., Any], Declaration]] = {}
