"""One measured value, as the driver keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Sample:
    """A value of a metric, measured by a replica (or by the driver, then as replica 0) at a time."""

    moment: float  # seconds since the epoch
    instance: int
    metric: str
    value: float

    @classmethod
    def parse(cls, line: str) -> Sample | None:
        """Return the sample in a line of an adapter, or None if it is not one."""
        record = parse_line(line)
        if record is None or record.get("kind") != "adapter":
            return None
        try:
            return cls(
                moment=datetime.fromisoformat(record["t"]).timestamp(),
                instance=int(record.get("instance_id", 0)),
                metric=str(record["metric"]),
                value=float(record["value"]),
            )
        except (KeyError, TypeError, ValueError):  # the harness drops such a line, too
            return None


def parse_line(line: str) -> dict[str, Any] | None:
    """Return the object in a line, or None if it is something else that a library has printed."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


Sink = Callable[[Sample], None]
