"""The benchmark suite: its statistics, its output, its options, and what it does when a queue fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from benchmarks import __main__ as suite
from benchmarks import contender as contender_module
from benchmarks import environments, scenarios
from benchmarks.contestants import FLOORS, MORE_PEERS, OURS, PEERS, load
from benchmarks.contestants.contract import CannotTakePartError, Contestant
from benchmarks.marks import Marks
from benchmarks.report import as_json, show
from benchmarks.scenario import Bench, Result, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]

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
        "  theirs       750 jobs/s (500 to 1,000, 2 rounds)  ours has 2.50 x",
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


def test_the_json_has_every_figure_of_every_round(tmp_path: Path) -> None:
    measured = result(
        {"ours": rates(1000.5, 3000), "theirs": rates(500, 1000)},
        targets=(Target(RATE, 2, "ours", "theirs"), Target(RATE, 2, "ours", "nobody")),
    )
    measured.failed["third"] = "a worker ended"

    as_json(tmp_path / "figures.json", [measured], {"command": "python3 dev.py bench"})

    written = json.loads((tmp_path / "figures.json").read_text())
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


# --- Options


def test_an_unknown_scenario_is_an_error_that_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        suite.parse(["drain", "drian"])
    assert error.value.code == 2
    message = capsys.readouterr().err
    assert "There is no scenario 'drian'." in message
    assert ", ".join(scenarios.NAMES) in message.replace("\n", " ")


def test_an_unknown_peer_is_an_error_that_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.parse(["--peer", "nobody"])
    assert "procrastinate" in capsys.readouterr().err


def test_the_default_options_run_everything_once() -> None:
    options = suite.parse([])
    assert (options.scenarios, options.peer, options.full, options.rounds) == ([], None, False, None)


@pytest.mark.parametrize(
    ("arguments", "peers"),
    [
        ([], PEERS),
        (["--full"], (*PEERS, *MORE_PEERS)),
        (["--peer", "none"], ()),
        (["--peer", "oban", "--peer", "celery"], ("oban", "celery")),
        (["--full", "--peer", "celery"], ("celery",)),
    ],
)
def test_the_contestants_of_a_scenario_with_peers(arguments: list[str], peers: tuple[str, ...]) -> None:
    chosen = [scenario(with_peers=True, contestants=("redis",))]
    names = suite.contestants(chosen, suite.parse(arguments))
    assert names == [OURS, "redis", *FLOORS, *peers]


def test_a_scenario_without_peers_needs_only_its_own_contestants() -> None:
    assert suite.contestants([scenario(contestants=("loops", OURS))], suite.parse(["--full"])) == [
        OURS,
        "loops",
    ]


# --- Contestants that fail


class Broken(Contestant):
    """A queue whose workers end with an error. Its other methods do nothing."""

    name = "broken"
    pace = 100
    unfinished = "SELECT 1"
    clear = "SELECT 1"

    def program(self) -> list[str]:
        return [sys.executable, "-c", "print(0)"]

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        failing = "import sys; print('There is no table of jobs.', file=sys.stderr); sys.exit(3)"
        return [[sys.executable, "-c", failing] for _ in range(processes)]


class NotOnPyPI(Broken):
    name = "not-on-pypi"
    requirements = ("there-is-no-such-package==1.0",)


class NoTables(Broken):
    name = "no-tables"

    def program(self) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('permission denied for schema public')"]


class NoProgram(Broken):
    name = "no-program"

    def services(self, folder: Path) -> Any:
        raise CannotTakePartError("Install redis-server.")


FAILING = {each.name: each for each in (Broken, NotOnPyPI, NoProgram, NoTables)}


@pytest.fixture
def with_failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Add the contestants above, and remove the databases of a run at the end."""
    monkeypatch.setattr(
        contender_module, "load", lambda name: FAILING[name]() if name in FAILING else load(name)
    )
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "environments")
    yield
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for name in (OURS, *FAILING):
            connection.execute(f'DROP DATABASE IF EXISTS "benchmark_{name}" WITH (FORCE)')


def fail_to_install(command: Sequence[str]) -> None:
    raise environments.CannotInstallError("No matching distribution found for there-is-no-such-package")


@pytest.mark.usefixtures("with_failing")
def test_a_contestant_that_cannot_run_here_is_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "_run", fail_to_install)

    names = ["not-on-pypi", "no-program", "no-tables", "broken"]
    contenders, skipped = suite.enter(names, os.environ["DATABASE_URL"])

    for contender in contenders.values():
        contender.close()
    assert list(contenders) == ["broken"]
    assert skipped == {
        "not-on-pypi": "No matching distribution found for there-is-no-such-package",
        "no-program": "Install redis-server.",
        "no-tables": "no-tables: prepare failed: permission denied for schema public",
    }
    assert "skipped no-program: Install redis-server." in capsys.readouterr().out


def test_a_variant_that_fails_is_not_run_again_and_the_others_go_on() -> None:
    ran: list[str] = []

    def measure(name: str) -> dict[str, float]:
        ran.append(name)
        if name == "theirs" and ran.count(name) == 2:
            raise contender_module.StuckError("no job ran for a minute")
        return {RATE: 1.0}

    names = ("theirs", "ours")
    example = scenario(variants=lambda bench: [Variant(name, partial(measure, name)) for name in names])
    measured = suite.run(example, Bench({}, 1), 3)

    assert ran == ["theirs", "ours", "theirs", "ours", "ours"]
    assert measured.failed == {"theirs": "no job ran for a minute"}
    assert {name: len(rounds) for name, rounds in measured.rounds.items()} == {"theirs": 1, "ours": 3}


# --- Marks

MARKING = """
import multiprocessing, os, threading
from benchmarks.marks import mark, stamp

def job(first):
    for number in range(first, first + 500):
        stamp(number)
        mark()

def child(first):
    threads = [threading.Thread(target=job, args=(first + 500 * each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

mark()  # so that the children inherit the slot of their parent
context = multiprocessing.get_context("fork")
children = [context.Process(target=child, args=(first,)) for first in (0, 2000)]
for each in children:
    each.start()
for each in children:
    each.join()
"""


def test_marks_of_forked_processes_with_threads_are_all_counted(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    environment = {**os.environ, "BENCHMARK_MARKS": str(marks.path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", MARKING], env=environment, check=True, timeout=60)

    assert marks.count() == 1 + 2 * 4 * 500
    stamps = marks.stamps(4000)
    assert 0 < marks.first() <= min(stamps) <= max(stamps) <= marks.last()
    assert marks.stamps(4001)[-1] == 0

    marks.reset()
    assert marks.count() == 0
    assert set(marks.stamps(4000)) == {0}


# --- The whole suite


@pytest.mark.usefixtures("with_failing")
def test_our_queue_is_measured_although_another_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "FLOORS", ("broken",))
    file = tmp_path / "figures.json"

    suite.main(["drain", "--peer", "none", "--rounds", "1", "--seconds", "0.02", "--json", str(file)])

    out = capsys.readouterr().out
    assert "failed: broken: a worker ended\nThere is no table of jobs." in out
    written = json.loads(file.read_text())
    (drain,) = written["scenarios"]
    assert list(drain["rounds"]) == [OURS]
    (figures,) = drain["rounds"][OURS]
    assert figures["jobs/s"] > 0
    assert list(drain["failed"]) == ["broken"]
    assert written["server"]["server_version"]
