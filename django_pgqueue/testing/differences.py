"""What a test expects of a job, and in which words a job differs from that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils.timezone import is_naive

from .. import links
from ..payload import encode_arguments

if TYPE_CHECKING:
    from ..models import Job

__all__ = ["ANY", "Expected"]

ANY: Any = type("Any", (), {"__repr__": lambda self: "ANY"})()
"""The test does not say."""
_NO_LIMIT = 2**28
_PUNCTUAL = timedelta(seconds=1)


@dataclass(frozen=True)
class Expected:
    """What a test expects. A value is ``ANY`` if the test does not say."""

    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **given: Any) -> Expected:
        """Take what was given, with arguments as a job stores them."""
        values = {name: value for name, value in given.items() if value is not ANY}
        _check(values)
        if "args" in values:
            values["args"] = json.loads(encode_arguments(list(values["args"]), {}, _NO_LIMIT)[0])
        if "kwargs" in values:
            values["kwargs"] = json.loads(encode_arguments([], dict(values["kwargs"]), _NO_LIMIT)[1])
        if "after" in values:
            values["after"] = _parents(values["after"])
        if values.get("batch") is not None:
            values["batch"] = links.batch(values["batch"]).id
        return cls(values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={_shown(name, value)}" for name, value in self.values.items())

    def differences(self, job: Job) -> list[str]:
        """Return a line for each value that differs; none if the job is as expected."""
        lines = []
        for name, wanted in self.values.items():
            if name == "run_after":
                lines += _time_difference(job, wanted)
            elif (found := _value(job, name)) != wanted:
                lines += _difference(name, found, wanted)
        return lines


def _check(values: dict[str, Any]) -> None:
    """Raise ``TypeError`` or ``ValueError`` for what no job could have, because of a slip in the test."""
    if isinstance(args := values.get("args", ()), str) or not isinstance(args, Iterable):
        raise TypeError(f"args takes a list of the arguments, args=[{args!r}], not {args!r}.")
    if not isinstance(kwargs := values.get("kwargs", {}), Mapping):
        raise TypeError(f"kwargs takes a dict of the arguments, not {kwargs!r}.")
    run_after = values.get("run_after")
    if run_after is not None and not isinstance(run_after, (datetime, timedelta)):
        raise TypeError(f"run_after takes an aware datetime, a timedelta or None, not {run_after!r}.")
    if isinstance(run_after, datetime) and is_naive(run_after):
        raise ValueError(f"run_after takes an aware datetime, and {run_after!r} has no time zone.")


def _parents(given: Any) -> list[int]:
    return sorted(link.id for link in links.after([] if given is None else given))


def _value(job: Job, name: str) -> Any:
    """Return what a job has, in the form in which it is compared."""
    if name == "after":
        return sorted(job.parent_ids or [])
    return job.batch_id if name == "batch" else getattr(job, name)


def _difference(name: str, found: Any, wanted: Any) -> list[str]:
    """Name the items that differ if there are several, and otherwise the values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        lines = [f"{name}[{key!r}] is missing" for key in wanted if key not in found]
        lines += [f"{name}[{key!r}] is {found[key]!r}, and was not expected" for key in found.keys() - wanted]
        both = [key for key in wanted if key in found and found[key] != wanted[key]]
        return [*lines, *(f"{name}[{key!r}] is {found[key]!r}, not {wanted[key]!r}" for key in both)]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted) > 1:
        pairs = enumerate(zip(found, wanted, strict=True))
        return [f"{name}[{place}] is {is_!r}, not {to_be!r}" for place, (is_, to_be) in pairs if is_ != to_be]
    return [f"{name} is {found!r}, not {wanted!r}"]


def _time_difference(job: Job, wanted: datetime | timedelta | None) -> list[str]:
    """Compare ``run_after``: a time, the time since the enqueue, or None for a job that was due at once."""
    delay = job.run_after - job.enqueued_at
    if wanted is None:
        return [f"run_after is {delay} after the enqueue, not at once"] if delay > _PUNCTUAL else []
    if isinstance(wanted, timedelta):
        if abs(delay - wanted) > _PUNCTUAL:
            return [f"run_after is {delay} after the enqueue, not {wanted}"]
        return []
    if abs(job.run_after - wanted) > _PUNCTUAL:
        return [f"run_after is {job.run_after.isoformat()}, not {wanted.isoformat()}"]
    return []


def _shown(name: str, value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value) if name else str(value)
