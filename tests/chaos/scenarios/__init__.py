"""All scenarios of the fault harness."""

from __future__ import annotations

from . import clocks, disks, limits, network, poison, processes, server, sessions, upgrade

SCENARIOS = {
    scenario.name: scenario
    for module in (processes, server, disks, sessions, network, poison, clocks, limits, upgrade)
    for scenario in module.SCENARIOS
}
