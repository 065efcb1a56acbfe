"""The statistics of a scenario's rounds and of the public harness, and how they are shown and written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.progress import Progress
from benchmarks.public.latencies import Latencies
from benchmarks.public.phases import Phase
from benchmarks.public.samples import Sample
from benchmarks.public.summary import Span, summarize
from benchmarks.public.table import table
from benchmarks.report import as_json, show
from benchmarks.scenario import Result, Scenario, Target

RATE, DELAY = "jobs/s", "p50 ms"


def scenario(**changes: Any) -> Scenario:
    given = {"name": "example", "title": "An example", "about": "What it measures.", "figure": RATE}
    return Scenario(**{**given, "variants": lambda bench: [], "baseline": "ours", **changes})


def result(rounds: dict[str, list[dict[str, float]]], **changes: Any) -> Result:
    return Result(scenario(**changes), rounds)


def rates(*values: float) -> list[dict[str, float]]:
    return [{RATE: value} for value in values]


@pytest.mark.parametrize(
    ("ours", "theirs", "median", "ratio"),
    [
        pytest.param(rates(10, 500, 20), [], 20, None, id="the middle round counts"),
        pytest.param(rates(10, 20), [], 15, None, id="the middle of two"),
        pytest.param([{DELAY: 1.0}], rates(5), None, None, id="a figure that was not measured"),
        # The machine became ten times as slow after the first round. The quotient of the medians is 0.2.
        pytest.param(rates(1000, 100, 100), rates(500, 50, 500), 100, 2, id="the ratio is of the same round"),
        pytest.param(rates(1000, 100, 60), [{}, *rates(50, 30)], 100, 2, id="a round without the figure"),
        pytest.param(rates(40, 1), rates(10), 20.5, 4, id="a failure in a later round"),
        pytest.param(rates(1, 6), rates(0, 3), 3.5, 2, id="a rate of zero"),
    ],
)
def test_medians_and_ratios(ours: Any, theirs: Any, median: float | None, ratio: float | None) -> None:
    measured = result({"ours": ours, "theirs": theirs})
    assert (measured.median("ours", RATE), measured.ratio("ours", "theirs", RATE)) == (median, ratio)


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target(RATE, 2, "ours", "theirs"), (2, True)),
        (Target(RATE, 2.1, "ours", "theirs"), (2, False)),
        (Target(RATE, 1.9, "ours", "theirs", at_most=True), (2, False)),
        (Target(RATE, 90, "ours"), (100, True)),
        (Target(RATE, 1, "ours", "nobody"), None),
        (Target(DELAY, 1, "ours"), None),
    ],
)
def test_targets(target: Target, reached: tuple[float, bool] | None) -> None:
    assert result({"ours": rates(100), "theirs": rates(50)}).reached(target) == reached


def test_a_result_is_shown_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    measured = result(
        {"ours": [{RATE: 1000, DELAY: 1.25}, {RATE: 3000}], "theirs": [{DELAY: 3}, {RATE: 1000}]},
        targets=(
            Target(RATE, 2, "ours", "theirs"),
            Target(DELAY, 1, "ours", at_most=True),
            Target(RATE, 2, "ours", "nobody"),
        ),
    )
    measured.failed["third"] = "a worker ended"
    show(measured)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "An example (example)",
        "  What it measures.",
        "  ours       2,000 jobs/s (1,000 to 3,000, 2 rounds)",
        "          1.25 p50 ms",
        "  theirs     1,000 jobs/s (1,000 to 1,000, 1 rounds)  ours has 3 x",
        "          3 p50 ms",
        "  third   failed: a worker ended",
        "  target reached: ours / theirs: 3 (at least 2)",
        "  target MISSED : ours, p50 ms: 1.25 (at most 1)",
    ]
    (written,) = json.loads(json.dumps(as_json([measured], {})))["scenarios"]
    assert (written["rounds"], written["failed"]) == (measured.rounds, {"third": "a worker ended"})
    assert [(each["value"], each["reached"]) for each in written["targets"]] == [(3, True), (1.25, False)]


def test_the_rate_of_each_tenth_of_a_run() -> None:
    progress = Progress()
    for count in range(1001):
        progress.saw(count, 10 + count * 0.01 if count <= 500 else 15 + (count - 500) * 0.02, 1000)
    assert progress.tenths(10.0, 1000) == pytest.approx([100] * 5 + [50] * 5)


def line(moment: float, metric: str, value: float, instance: int = 0) -> Sample:
    """Return a line as an adapter of the public harness writes it."""
    time = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record = {"t": time, "system": "x", "kind": "adapter", "subject_kind": "adapter", "subject": ""}
    more = {"instance_id": instance, "metric": metric, "value": value, "window_s": 1.0}
    sample = Sample.parse(json.dumps(record | more))
    assert sample
    return sample


def test_the_figures_of_a_phase_of_the_public_harness() -> None:
    """Whole intervals of the phase count. Rates of replicas add up, and of latencies the largest counts."""
    began = 1_000_000.3
    measured = [
        line(1_000_001.0, "completion_rate", 999.0),  # it began before the phase
        *(line(1_000_000.0 + tick, "completion_rate", 100.0 + tick) for tick in (2, 3)),
        *(line(1_000_000.1 + tick, "completion_rate", 50.0, 1) for tick in (2, 3)),
        line(1_000_005.0, "completion_rate", 999.0),  # it ended after the phase
        line(1_000_002.0, "end_to_end_p99_ms", 5.0),
        line(1_000_002.1, "end_to_end_p99_ms", 7.0, 1),
        line(1_000_002.0, "total_backlog", 5.0),
        line(1_000_004.0, "total_backlog", 3.0),
    ]
    figures = summarize(Span(Phase("clean", 4.0), began, began + 4), measured, 1.0)
    # In the third interval no replica wrote a rate, which is a rate of 0, but no latency.
    assert (figures["completion_rate"], figures["mean_completion_rate"]) == (152.0, pytest.approx(305 / 3))
    assert (figures["end_to_end_p99_ms"], figures["last_backlog"], figures["queue_depth"]) == (7.0, 3.0, None)
    shown = table("a queue", {"phases": {"phases": {"clean": figures}, "exit_codes": [1]}})
    assert "clean" in shown
    assert "exit codes" in shown
    assert Sample.parse("a log line") is None


def test_percentiles_are_of_the_window() -> None:
    moment = 0.0
    latencies = Latencies(30.0, clock=lambda: moment)
    latencies.add(1000.0 + number for number in range(100))
    moment = 20.0
    latencies.add(float(number) for number in range(1, 101))
    assert latencies.percentiles([0.25, 0.5, 1.0]) == [50.0, 100.0, 1100.0]  # three significant digits
    moment = 31.0
    assert latencies.percentiles([0.5, 0.99]) == [50.0, 99.0]
    moment = 51.0
    assert latencies.percentiles() is None
