"""Show results as tables in the terminal, and return them as values for JSON."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .scenario import Result, Target

__all__ = ["as_json", "commit", "machine", "show"]


def commit() -> str:
    """Return the commit that is measured, with a plus sign if files differ from it."""
    git = ("git", "-C", str(Path(__file__).parent))
    shown = [
        subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    return shown[0] + ("+" if shown[1] else "")


def machine() -> dict[str, str]:
    """Return what the figures depend on besides the server."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "Python": platform.python_version(),
        **{name: version(name) for name in ("Django", "psycopg", "dj-pgqueue")},
    }


def show(result: Result) -> None:
    """Print one scenario: a line for each variant, then its targets."""
    scenario = result.scenario
    print(f"\n{scenario.title} ({scenario.name})\n  {scenario.about}")
    width = max((len(name) for name in (*result.rounds, *result.failed)), default=0)
    for variant in result.rounds:
        print(f"  {variant:{width}}  {_spread(result, variant)}{_compared(result, variant)}")
        rest = dict.fromkeys(
            name for each in result.rounds[variant] for name in each if name != scenario.figure
        )
        if rest:
            figures = (f"{_number(result.median(variant, each))} {each}" for each in rest)
            print(f"  {'':{width}}  {', '.join(figures)}")
    for variant, why in result.failed.items():
        print(f"  {variant:{width}}  failed: {why}")
    for target in scenario.targets:
        _show_target(result, target)
    sys.stdout.flush()


def as_json(results: Iterable[Result], about: dict[str, Any]) -> dict[str, Any]:
    """Return every figure of every round, with the machine, the server and the versions."""
    return {**about, "scenarios": [_plain(result) for result in results]}


def _plain(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    return {
        "name": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "figure": scenario.figure,
        "baseline": scenario.baseline,
        "lower_is_better": scenario.lower_is_better,
        "rounds": result.rounds,
        "failed": result.failed,
        "targets": [
            {**vars(target), "value": reached[0], "reached": reached[1]}
            for target in scenario.targets
            if (reached := result.reached(target))
        ],
    }


def _show_target(result: Result, target: Target) -> None:
    reached = result.reached(target)
    if reached is None:
        return
    value, is_good = reached
    what = f"{target.variant} / {target.against}" if target.against else f"{target.variant}, {target.figure}"
    bound = f"at {'most' if target.at_most else 'least'} {target.bound:g}"
    print(f"  target {'reached' if is_good else 'MISSED '}: {what}: {_number(value)} ({bound})")


def _compared(result: Result, variant: str) -> str:
    scenario = result.scenario
    ratio = result.ratio(scenario.baseline, variant, scenario.figure)
    return (
        ""
        if variant == scenario.baseline or ratio is None
        else f"  {scenario.baseline} has {_number(ratio)} x"
    )


def _spread(result: Result, variant: str) -> str:
    figure = result.scenario.figure
    values: Sequence[float] = result.values(variant, figure)
    if not values:
        return f"{'-':>8} {figure}"
    return (
        f"{_number(result.median(variant, figure)):>8} {figure}"
        f" ({_number(min(values))} to {_number(max(values))}, {len(values)} rounds)"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
