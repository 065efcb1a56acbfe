"""The statistics of a scenario's rounds, and how they are shown and written."""

from __future__ import annotations

import json

import pytest

from benchmarks.report import as_json, show
from benchmarks.scenario import Target

from .examples import DELAY, RATE, rates, result

# --- Statistics


def test_the_median_of_the_rounds_counts() -> None:
    assert result({"ours": rates(10, 500, 20)}).median("ours", RATE) == 20
    assert result({"ours": rates(10, 20)}).median("ours", RATE) == 15


def test_a_figure_that_was_not_measured_has_no_median_and_no_ratio() -> None:
    measured = result({"ours": rates(10), "theirs": rates(5)})
    assert measured.median("ours", DELAY) is None
    assert measured.median("nobody", RATE) is None
    assert measured.ratio("ours", "nobody", RATE) is None


def test_a_ratio_is_that_of_the_same_round() -> None:
    # The machine became ten times as slow after the first round. The quotient of the medians would be 0.2.
    measured = result({"ours": rates(1000, 100, 100), "theirs": rates(500, 50, 500)})
    assert measured.ratio("ours", "theirs", RATE) == 2


def test_a_round_without_the_figure_is_left_out_of_the_ratio() -> None:
    ours = [{RATE: 1000.0}, {RATE: 100.0}, {RATE: 60.0}]
    theirs: list[dict[str, float]] = [{}, {RATE: 50.0}, {RATE: 30.0}]
    measured = result({"ours": ours, "theirs": theirs})
    assert measured.ratio("ours", "theirs", RATE) == 2
    assert measured.median("theirs", RATE) == 40


def test_a_variant_that_failed_in_a_later_round_is_compared_in_the_rounds_before() -> None:
    measured = result({"ours": rates(40, 1), "theirs": rates(10)})
    assert measured.ratio("ours", "theirs", RATE) == 4


def test_a_ratio_to_zero_is_left_out() -> None:
    measured = result({"ours": rates(1, 6), "theirs": rates(0, 3)})
    assert measured.ratio("ours", "theirs", RATE) == 2
    assert result({"ours": rates(1), "theirs": rates(0)}).ratio("ours", "theirs", RATE) is None


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target(RATE, 2, "ours", "theirs"), (2, True)),
        (Target(RATE, 2.1, "ours", "theirs"), (2, False)),
        (Target(RATE, 2, "ours", "theirs", at_most=True), (2, True)),
        (Target(RATE, 1.9, "ours", "theirs", at_most=True), (2, False)),
        (Target(RATE, 90, "ours"), (100, True)),
        (Target(RATE, 90, "ours", at_most=True), (100, False)),
        (Target(RATE, 1, "ours", "nobody"), None),
        (Target(DELAY, 1, "ours"), None),
    ],
)
def test_targets(target: Target, reached: tuple[float, bool] | None) -> None:
    assert result({"ours": rates(100), "theirs": rates(50)}).reached(target) == reached


# --- Output


def test_a_result_is_shown_with_its_spread_its_ratio_and_its_targets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = result(
        {"ours": [{RATE: 1000, DELAY: 1.25}, {RATE: 3000, DELAY: 1.25}], "theirs": rates(500, 1000)},
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
        "  theirs       750 jobs/s (500 to 1,000, 2 rounds)  ours has 2.5 x",
        "  third   failed: a worker ended",
        "  target reached: ours / theirs: 2.5 (at least 2)",
        "  target MISSED : ours, p50 ms: 1.25 (at most 1)",
    ]


def test_figures_that_were_measured_in_some_rounds_only_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(result({"ours": [{}, {RATE: 10, DELAY: 7}], "theirs": [{DELAY: 3}]}))

    assert capsys.readouterr().out.splitlines()[3:] == [
        "  ours          10 jobs/s (10 to 10, 1 rounds)",
        "          7 p50 ms",
        "  theirs         - jobs/s",
        "          3 p50 ms",
    ]


def test_a_scenario_in_which_all_failed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    measured = result({}, targets=(Target(RATE, 2, "ours", "theirs"),))
    measured.failed["ours"] = "no table"
    show(measured)
    assert capsys.readouterr().out.splitlines()[3:] == ["  ours  failed: no table"]


def test_the_json_has_every_figure_of_every_round() -> None:
    measured = result(
        {"ours": rates(1000.5, 3000), "theirs": rates(500, 1000)},
        targets=(Target(RATE, 2, "ours", "theirs"), Target(RATE, 2, "ours", "nobody")),
    )
    measured.failed["third"] = "a worker ended"

    written = json.loads(json.dumps(as_json([measured], {"command": "python3 dev.py bench"})))

    assert written["command"] == "python3 dev.py bench"
    (example,) = written["scenarios"]
    assert example["rounds"] == {
        "ours": [{RATE: 1000.5}, {RATE: 3000}],
        "theirs": [{RATE: 500}, {RATE: 1000}],
    }
    assert (example["name"], example["figure"], example["baseline"]) == ("example", RATE, "ours")
    assert example["failed"] == {"third": "a worker ended"}
    (target,) = example["targets"]
    assert (target["against"], target["bound"], target["reached"]) == ("theirs", 2, True)
    assert target["value"] == pytest.approx((1000.5 / 500 + 3) / 2)
