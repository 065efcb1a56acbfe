"""Results of a benchmark for the tests."""

from __future__ import annotations

from typing import Any

from benchmarks.scenario import Result, Scenario

__all__ = ["DELAY", "RATE", "rates", "result", "scenario"]

RATE = "jobs/s"
DELAY = "p50 ms"


def scenario(**changes: Any) -> Scenario:
    return Scenario(
        **{
            "name": "example",
            "title": "An example",
            "about": "What it measures.",
            "figure": RATE,
            "variants": lambda bench: [],
            "baseline": "ours",
            **changes,
        }
    )


def result(rounds: dict[str, list[dict[str, float]]], **changes: Any) -> Result:
    return Result(scenario(**changes), rounds)


def rates(*values: float) -> list[dict[str, float]]:
    return [{RATE: value} for value in values]
