"""Draw results as SVG: ``dev.py bench --plots FOLDER``, or ``python -m benchmarks.plots JSON FOLDER``.

Each scenario becomes one picture, with a bar for the median of each variant and a line from the slowest to
the fastest round. The colors can be read on a light and on a dark page. ``overview.svg`` is the picture of
the README.
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contestants import FLOORS, OURS, OURS_BEST, PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["draw"]

#: In the overview: the scenarios side by side.
OVERVIEW = ("drain", "inserts")
#: The axis is logarithmic if the longest bar would have more than this many times the length of the shortest.
LOGARITHMIC_FROM = 300

TEXT, LINES = "#6e7781", "#76839060"
OUR_COLOR, PEER_COLOR, FLOOR_COLOR = "#2e8b6f", "#6f8fb5", "#a3a8ae"


def draw(figures: dict[str, Any], folder: Path, only: str = "") -> list[Path]:
    """Draw every scenario that has results, or only one picture. Return the files."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.family": "sans-serif"})
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    scenarios = {each["name"]: each for each in figures["scenarios"] if each["rounds"]}
    pictures: dict[str, Sequence[Any]] = {name: [scenario] for name, scenario in scenarios.items()}
    if all(name in scenarios for name in OVERVIEW):
        pictures["overview"] = [_of_queues(scenarios[name]) for name in OVERVIEW]
    if only:
        pictures = {only: pictures[only]} if only in pictures else {}
    files = []
    for name, parts in pictures.items():
        tallest = max(len(part["rounds"]) for part in parts)
        figure, axes = pyplot.subplots(
            1, len(parts), figsize=(7.2 if len(parts) == 1 else 11, 0.9 + 0.36 * tallest), squeeze=False
        )
        for axis, part in zip(axes[0], parts, strict=True):
            _bars(axis, part)
        figure.tight_layout()
        files.append(folder / f"{name}.svg")
        figure.savefig(files[-1], transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return files


def _of_queues(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return the scenario without the variants that are our queue with other settings."""
    queues = {OURS, *PEERS, *FLOORS}
    rounds = {name: rounds for name, rounds in scenario["rounds"].items() if name in queues}
    return {**scenario, "rounds": rounds}


def _bars(axis: Axes, scenario: dict[str, Any]) -> None:
    """Draw one scenario, the best variant at the top."""
    figure = scenario["figure"]
    values = {name: [each[figure] for each in rounds] for name, rounds in scenario["rounds"].items()}
    order = sorted(values, key=lambda name: statistics.median(values[name]))
    if scenario["lower_is_better"]:
        order.reverse()
    medians = [statistics.median(values[name]) for name in order]
    ours = {OURS, OURS_BEST}
    colors = [OUR_COLOR if name in ours else FLOOR_COLOR if name in FLOORS else PEER_COLOR for name in order]
    axis.barh(order, medians, color=colors, height=0.62)
    if min(medians) > 0 and max(medians) / min(medians) > LOGARITHMIC_FROM:
        axis.set_xscale("log")
        axis.set_xlim(min(medians) / 3, max(medians) * 4)
    else:
        axis.set_xlim(0, max(medians) * 1.22 or 1)
    for place, (name, median) in enumerate(zip(order, medians, strict=True)):
        axis.plot([min(values[name]), max(values[name])], [place, place], color=TEXT, linewidth=1)
        label = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        axis.annotate(
            label, (max(median, *values[name]), place), (4, 0), textcoords="offset points", va="center",
            color=TEXT, fontsize=9,
        )  # fmt: skip
    note = ", lower is better" if scenario["lower_is_better"] else ""
    title = textwrap.fill(f"{scenario['title']} ({figure}{note})", 58)
    axis.set_title(title, color=TEXT, fontsize=10, loc="left")
    axis.tick_params(colors=TEXT, labelsize=9, length=0)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    axis.grid(axis="x", color=LINES, linewidth=0.5)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)


def main(arguments: Sequence[str]) -> None:
    """Draw the figures of an earlier run."""
    if len(arguments) != 2:
        raise SystemExit("usage: python -m benchmarks.plots FIGURES.json FOLDER")
    for file in draw(json.loads(Path(arguments[0]).read_text()), Path(arguments[1])):
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
