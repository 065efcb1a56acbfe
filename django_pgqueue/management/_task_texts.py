"""Tasks on the command line: where each is declared, its queue and its policy, as text and as JSON."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..discovery import source_place
from ..rates import Rate
from ..schedules.declare import declared_schedules, schedules_in_settings

if TYPE_CHECKING:
    from ..definition import Task

__all__ = ["as_json", "details", "schedules_by_task"]

#: The options of a task that the list shows if they are not the default.
_POLICY = (
    "max_attempts", "timeout", "backoff", "retry_on", "fail_on", "expires_after", "on_lost", "atomic",
    "unique", "concurrency", "rate", "group", "database", "takes_context",
)  # fmt: skip


def as_json(task: Task[..., Any], schedules: list[str]) -> dict[str, Any]:
    """Return a task as values."""
    return {
        "path": task.module_path,
        "declared_in": source_place(task),
        "queue": task.queue_name,
        "priority": task.priority,
        "async": iscoroutinefunction(task.func),
        "policy": _policy(task),
        "schedules": schedules,
    }


def details(task: Task[..., Any], schedules: list[str]) -> str:
    """Return the lines of the list for a task."""
    policy = _policy(task)
    lines = {
        "Queue": task.queue_name + (f", priority {task.priority}" if task.priority else ""),
        "Policy": ", ".join(f"{name}={value}" for name, value in policy.items()) or "the defaults",
        "Schedules": ", ".join(schedules),
        "Declared in": source_place(task),
    }
    kind = "async " if iscoroutinefunction(task.func) else ""
    shown = [f"  {f'{label}:':12} {text}" for label, text in lines.items() if text]
    return "\n".join([f"{kind}{task.module_path}", *shown])


def schedules_by_task() -> dict[str, list[str]]:
    """Return the names of the schedules that code and settings declare, by the path of their task."""
    found: dict[str, list[str]] = {}
    in_settings, _ = schedules_in_settings()
    for name, declaration in sorted({**in_settings, **declared_schedules()}.items()):
        found.setdefault(declaration.task_path, []).append(name)
    return found


def _policy(task: Task[..., Any]) -> dict[str, str]:
    default = type(task).__dataclass_fields__
    values = {name: getattr(task, name) for name in _POLICY}
    return {name: _text(value) for name, value in values.items() if value != default[name].default}


def _text(value: Any) -> str:
    if isinstance(value, Rate):
        return f"{value.starts} in {value.per}"
    if isinstance(value, type) or callable(value):
        return str(getattr(value, "__qualname__", value))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
