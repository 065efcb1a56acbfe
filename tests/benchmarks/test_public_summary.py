"""What the driver of the public harness computes from lines of adapters."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from benchmarks.public.latencies import Latencies
from benchmarks.public.phases import Phase
from benchmarks.public.samples import Sample
from benchmarks.public.summary import Span, summarize
from benchmarks.public.table import table

BEGAN = 1_000_000.3
PHASE = Span(Phase("clean", 4.0), BEGAN, BEGAN + 4)


def line(moment: float, metric: str, value: float, instance: int = 0) -> str:
    """Return a line as an adapter writes it."""
    time = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record = {"t": time, "system": "x", "kind": "adapter", "subject_kind": "adapter", "subject": ""}
    return json.dumps(record | {"instance_id": instance, "metric": metric, "value": value, "window_s": 1.0})


def samples(*lines: str) -> list[Sample]:
    """Return the samples of lines that all are samples."""
    parsed = [Sample.parse(text) for text in lines]
    assert None not in parsed
    return [sample for sample in parsed if sample]


def test_only_whole_intervals_of_the_phase_count() -> None:
    measured = samples(
        line(1_000_001.0, "completion_rate", 999.0),  # it began before the phase
        line(1_000_002.001, "completion_rate", 10.0),
        line(1_000_003.002, "completion_rate", 20.0),
        line(1_000_004.003, "completion_rate", 60.0),
        line(1_000_005.0, "completion_rate", 999.0),  # it ended after the phase
    )
    figures = summarize(PHASE, measured, 1.0)
    assert (figures["completion_rate"], figures["mean_completion_rate"]) == (20.0, 30.0)


def test_rates_of_replicas_add_up_and_of_latencies_the_largest_counts() -> None:
    measured = samples(
        *(line(1_000_000.0 + tick, "completion_rate", 100.0 + tick, 0) for tick in (2, 3, 4)),
        *(line(1_000_000.1 + tick, "completion_rate", 50.0, 1) for tick in (2, 3, 4)),
        *(line(1_000_000.0 + tick, "end_to_end_p99_ms", 5.0, 0) for tick in (2, 3, 4)),
        *(line(1_000_000.1 + tick, "end_to_end_p99_ms", tick, 1) for tick in (2, 3, 4)),
        line(1_000_003.1, "end_to_end_p99_ms", 8.0, 2),
    )
    figures = summarize(PHASE, measured, 1.0)
    assert (figures["completion_rate"], figures["end_to_end_p99_ms"]) == (153.0, 5.0)


def test_a_tick_without_a_replica_is_a_rate_of_zero_but_no_latency() -> None:
    measured = samples(
        line(1_000_002.0, "completion_rate", 90.0),
        line(1_000_002.0, "end_to_end_p50_ms", 7.0),
        line(1_000_002.0, "total_backlog", 5.0),
        line(1_000_004.0, "total_backlog", 3.0),
    )
    figures = summarize(PHASE, measured, 1.0)
    assert (figures["completion_rate"], figures["mean_completion_rate"]) == (0.0, 30.0)
    assert (figures["end_to_end_p50_ms"], figures["last_backlog"]) == (7.0, 3.0)
    assert figures["queue_depth"] is None


@pytest.mark.parametrize(
    "text", ["a log line", "[1]", '{"kind": "descriptor"}', '{"kind": "adapter", "metric": "x", "value": 1}']
)
def test_other_lines_are_no_samples(text: str) -> None:
    assert Sample.parse(text) is None


def test_the_table_has_a_line_for_each_phase_and_says_what_went_wrong() -> None:
    figures = summarize(PHASE, samples(line(1_000_002.0, "completion_rate", 1234.0)), 1.0)
    whole = {"phases": {"clean": figures}, "exit_codes": [0]}
    text = table("a queue", {"phases": whole})
    assert "clean" in text
    assert "411" in text  # the mean of 1234, 0 and 0
    assert "exit codes" not in text
    assert "exit codes" in table("a queue", {"phases": {**whole, "exit_codes": [1]}})
    assert "broken: why" in table("a queue", {"phases": {"phases": {}, "broken": "why"}})


def test_percentiles_are_of_the_window() -> None:
    moment = 0.0
    latencies = Latencies(30.0, clock=lambda: moment)
    assert latencies.percentiles() is None
    latencies.add(1000.0 + number for number in range(100))
    moment = 20.0
    latencies.add(float(number) for number in range(1, 101))
    assert latencies.percentiles([0.25, 0.5, 1.0]) == [50.0, 100.0, 1100.0]  # three significant digits
    moment = 31.0
    assert latencies.percentiles([0.5, 0.99]) == [50.0, 99.0]
    moment = 51.0
    assert latencies.percentiles() is None
