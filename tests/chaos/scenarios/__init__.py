"""All scenarios of the fault harness."""

from __future__ import annotations

from ..harness.scenario import Scenario
from . import (
    bad_network,
    claims,
    clocks,
    disks,
    failover,
    limits,
    network,
    poison,
    pooler,
    processes,
    restarts,
    role_timeouts,
    server,
    sessions,
    upgrade,
)

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for module in (
        processes,
        restarts,
        server,
        claims,
        disks,
        sessions,
        role_timeouts,
        failover,
        network,
        bad_network,
        pooler,
        poison,
        clocks,
        limits,
        upgrade,
    )
    for scenario in module.SCENARIOS
}
