"""System checks for the schedules in ``PGQUEUE["SCHEDULES"]``, for names that are declared twice, and for the
keys of jobs that cannot be computed.

``@schedule`` validates what it declares when its module is imported, except for the keys: a callable may need
what is not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, register

from .. import conf
from ..compat import InvalidTask
from ..exceptions import InvalidKey, UnknownTask, WrongBackend
from ..schedules.declare import Declaration, declared_schedules, schedules_in_settings
from ..schedules.policy import call_keys
from ..schedules.synchronize import database_of, import_task_modules
from ..tasks.signatures import check_call
from ..tasks.task import find_task
from .backends import TAG, error, settings_are_broken


@register(TAG)
def check_schedules(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014, E015 and E016: schedules in the settings that are invalid, schedules that cannot be called, and
    those that settings and code declare.
    """
    if settings_are_broken():
        return []
    if not conf.current().schedules and not declared_schedules():
        return []
    import_task_modules()
    good, wrong = schedules_in_settings()
    return [
        *(_invalid(name, problem) for name, problem in wrong.items()),
        *(
            message
            for each in (*good.values(), *declared_schedules().values())
            for message in _uncallable(each)
        ),
        *_twice(good),
    ]


def _invalid(name: str, problem: str) -> CheckMessage:
    return error(
        "E014",
        f"PGQUEUE['SCHEDULES'][{name!r}] is invalid: {problem}",
        "Correct the value. The options are those of @schedule.",
    )


def _uncallable(declaration: Declaration) -> Iterator[CheckMessage]:
    where = f"PGQUEUE['SCHEDULES'][{declaration.name!r}]"
    if declaration.source == "code":
        where = f"The schedule {declaration.name!r} in {declaration.declared_by}"
    try:
        task = find_task(declaration.task_path)
        database_of(task)
        check_call(task, declaration.args, declaration.kwargs)
        call_keys(task, declaration.args, declaration.kwargs)
    except UnknownTask as problem:
        hint = "Set 'task' to the dotted path of a function with @task, such as 'shop.tasks.report'."
        yield error("E015", f"{where} names {problem}.", hint)
    except WrongBackend as problem:
        hint = "Declare the task with @task of django_pgqueue, or with another backend."
        yield error("E015", f"{where}: {problem}", hint)
    except InvalidKey as problem:
        hint = "Correct the arguments of the schedule, or the callable of the task."
        yield error("E015", f"{where} would not fire: {problem}", hint)
    except (TypeError, InvalidTask) as problem:
        hint = "Set 'args' and 'kwargs' to what the task takes."
        yield error("E015", f"{where} cannot be called: {problem}", hint)


def _twice(good: dict[str, Declaration]) -> Iterator[CheckMessage]:
    for name, declaration in declared_schedules().items():
        if name in good:
            yield error(
                "E016",
                f"The schedule {name!r} is declared twice: in PGQUEUE['SCHEDULES'], and with @schedule in "
                f"{declaration.declared_by}.",
                "Remove one of them, or give it another name.",
            )
