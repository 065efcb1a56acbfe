"""The scenarios, in the order in which they run, one module each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.scenario import Scenario

__all__ = ["FIGURES", "NAMES", "load"]

#: The name of each scenario and its module. A module has its scenarios in ``SCENARIOS``.
NAMES = {
    # With peers.
    "drain": "drain",
    "drain-1": "drain",
    "drain-10": "drain",
    "drain-100": "drain",
    "inserts": "inserts",
    "latency": "latency",
    "producers-1": "producers",
    "producers-4": "producers",
    "producers-16": "producers",
    "history": "history",
    "bulk": "enqueue",
    # Ours alone: what people run.
    "drain-threads": "drain",
    "inserts-fast": "inserts",
    "inserts-2": "inserts",
    "enqueue": "enqueue",
    "half-load": "half_load",
    "payloads": "payloads",
    "retries": "retries",
    "history-off": "history_off",
    "idle": "idle",
    "schedules": "schedules",
    # Ours alone: bad days.
    "snapshot": "snapshot",
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


#: The figures of the documentation: those with peers, then bad days and what a job costs.
FIGURES = (
    *("drain", "drain-1", "drain-10", "drain-100", "inserts", "latency"),
    *("producers-1", "producers-4", "producers-16", "history", "bulk"),
    *("snapshot", "future", "ready", "analytics", "loading", "listeners", "spread"),
    *("history-off", "payloads", "retries", "half-load", "idle"),
)


def load(name: str) -> Scenario:
    """Return the scenario with this name."""
    scenarios: list[Scenario] = import_module(f"{__name__}.{NAMES[name]}").SCENARIOS
    return next(scenario for scenario in scenarios if scenario.name == name)
