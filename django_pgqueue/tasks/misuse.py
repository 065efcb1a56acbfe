"""Answer what people who know other queues type out of habit: ``task(5)``, ``task.delay(5)``.

Without this, Python says that the object is not callable, or has no such attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["CallHabits", "Habits"]

_ENQUEUE = "enqueue({name}, ...)"
_LATER = "enqueue({name}.using(...), ...)"
_BIND = "enqueue_many({name}.bind(...) for ...)"
_CANVAS = "chain([{name}.bind(...), ...]), or a Batch"
_HABITS = {
    **dict.fromkeys(("delay", "delay_on_commit", "send", "defer", "perform_later"), _ENQUEUE),
    **dict.fromkeys(("apply_async", "send_with_options", "configure", "options", "schedule", "set"), _LATER),
    **dict.fromkeys(("s", "si", "signature", "subtask", "map", "starmap", "batch_defer", "message"), _BIND),
    **dict.fromkeys(("link", "link_error", "on_error"), "enqueue(other.using(after=job), ...)"),
    **dict.fromkeys(("chunks", "replace", "add_to_chord"), _CANVAS),
    **dict.fromkeys(("adelay", "defer_async"), "await aenqueue({name}, ...)"),
    **dict.fromkeys(("apply", "run", "call_local", "fn"), "{name}.call(...)"),
    "retry": "raise RetryLater(delay) in the task",
    "request": "current_job() in the task",
}


class Habits:
    """What a task says if it is used like one of another queue."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers must refuse these
        #: Django's templates call what is callable.
        do_not_call_in_templates = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse the call, and name the two that may be meant."""
            name = self.func.__name__
            raise TypeError(
                f"{self.module_path} is a task, which cannot be called like a function. To let a worker run "
                f"it, write enqueue({name}, ...). To run it now, write {name}.call(...)."
            )

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that does not exist. If another queue has it, name ours."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _HABITS:
                path = object.__getattribute__(self, "module_path")
                ours = _HABITS[name].format(name=path.rpartition(".")[2])
                message = f"The task {path} has no {name!r}. Write {ours}."
            raise AttributeError(message, name=name, obj=self)


_OF_CALLS = {
    **dict.fromkeys(("delay", "apply_async", "defer", "send", "apply"), "enqueue(call)"),
    **dict.fromkeys(("adelay", "defer_async"), "await aenqueue(call)"),
    **dict.fromkeys(("set", "options", "configure", "clone"), "call.using(...)"),
    **dict.fromkeys(("link", "on_error", "link_error", "then"), "enqueue(other.using(after=job))"),
}


class CallHabits:
    """What a call says if it is used like one of another queue."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse it."""
            raise TypeError(
                f"This is a call of {self.task.module_path}. To let a worker run it, write enqueue(call)."
            )

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that does not exist. If another queue has it, name ours."""
            message = f"'BoundTask' object has no attribute {name!r}"
            if name in _OF_CALLS:
                message = f"A call has no {name!r}. Write {_OF_CALLS[name]}."
            raise AttributeError(message, name=name, obj=self)
