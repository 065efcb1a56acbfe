"""All scenarios of the fault harness."""

from __future__ import annotations

from . import clocks, network, poison, processes, server, sessions, upgrade

SCENARIOS = {
    scenario.name: scenario
    for module in (processes, server, sessions, network, poison, clocks, upgrade)
    for scenario in module.SCENARIOS
}
