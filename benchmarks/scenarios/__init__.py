"""The scenarios, in the order in which they run, one module each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.scenario import Scenario

__all__ = ["NAMES", "load"]

#: The name of each scenario and its module. A module has its scenarios in ``SCENARIOS``.
NAMES = {
    # With peers.
    "drain": "drain",
    "drain-2": "drain",
    "drain-threads": "drain",
    "inserts": "inserts",
    "inserts-fast": "inserts",
    "inserts-2": "inserts",
    "latency": "latency",
    "enqueue": "enqueue",
    "bulk": "enqueue",
    "finished": "finished",
    "snapshot": "snapshot",
    # Ours alone: what people run.
    "sleeps": "sleeps",
    "half-load": "half_load",
    "payloads": "payloads",
    "retries": "retries",
    "history-off": "history_off",
    "idle": "idle",
    "schedules": "schedules",
    # Ours alone: bad days.
    "spread": "spread",
    "quiet-queues": "quiet_queues",
    "future": "future",
    "ready": "ready",
    "analytics": "analytics",
    "loading": "loading",
    "listeners": "listeners",
    "enqueuers": "enqueuers",
    "enqueuers-32": "enqueuers",
    # Ours alone: limits.
    "keys": "keys",
    "groups": "groups",
    "fairness": "groups",
    "rates": "rates",
    "rates-reached": "rates",
    "takes": "takes",
    "hooks": "hooks",
    "steps": "steps",
    "progress": "progress",
    "progress-calls": "progress",
    "fan-in": "fan_in",
    "members": "fan_in",
    "typed_payloads": "typed_payloads",
    "search": "search",
    # Only with --full, or by name.
    "sizes": "sizes",
    "steady": "steady",
}


def load(name: str) -> Scenario:
    """Return the scenario with this name."""
    scenarios: list[Scenario] = import_module(f"{__name__}.{NAMES[name]}").SCENARIOS
    return next(scenario for scenario in scenarios if scenario.name == name)
