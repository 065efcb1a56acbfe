"""The benchmark suite: its options, a whole run at its smallest, and what it does when a queue fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import __main__ as suite
from benchmarks import contender as contender_module
from benchmarks import environments, scenarios
from benchmarks.contestants import MORE_PEERS, OURS, PEERS, load
from benchmarks.contestants.contract import CannotTakePartError, Contestant
from benchmarks.marks import Marks
from benchmarks.scenario import Bench, Variant

from .test_results import RATE, scenario

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(["drain", "drian"], scenarios.NAMES), (["--peer", "nobody"], PEERS)],
    ids=["scenario", "peer"],
)
def test_an_unknown_name_is_an_error_that_names_the_others(
    arguments: list[str], names: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        suite.parse(arguments)
    assert error.value.code == 2
    message = capsys.readouterr().err
    assert all(name in message for name in names)


@pytest.mark.parametrize(
    ("arguments", "peers"),
    [
        ([], PEERS),
        (["--full"], (*PEERS, *MORE_PEERS)),
        (["--peer", "none"], ()),
        (["--full", "--peer", "oban", "--peer", "celery"], ("oban", "celery")),
    ],
)
def test_the_contestants_of_scenarios(arguments: list[str], peers: tuple[str, ...]) -> None:
    alone = scenario(contestants=("loops", OURS))
    options = suite.parse(arguments)
    assert suite.contestants([alone], options) == [OURS, "loops"]
    assert suite.contestants([scenario(with_peers=True), alone], options) == [OURS, *peers, "loops"]


def test_each_scenario_can_be_loaded() -> None:
    assert [scenarios.load(name).name for name in scenarios.NAMES] == [*scenarios.NAMES]


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
    # Other tests use the same server at the same time.
    prefix = f"benchmark_{os.environ.get('PYTEST_XDIST_WORKER', '')}_"
    monkeypatch.setattr(contender_module, "PREFIX", prefix)
    yield
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for name in (OURS, *FAILING):
            connection.execute(f'DROP DATABASE IF EXISTS "{prefix}{name}" WITH (FORCE)')


@pytest.mark.usefixtures("with_failing")
def test_our_queue_is_measured_although_others_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail_to_install(command: Sequence[str]) -> None:
        raise environments.CannotInstallError("No matching distribution found for there-is-no-such-package")

    with_failing = replace(scenarios.load("drain"), contestants=(*FAILING,))
    monkeypatch.setattr(environments, "_run", fail_to_install)
    monkeypatch.setattr(scenarios, "load", lambda name: with_failing)
    file = tmp_path / "figures.json"
    suite.main(["drain", "--peer", "none", "--rounds", "1", "--seconds", "0.02", "--json", str(file)])
    out = capsys.readouterr().out
    assert "skipped no-program: Install redis-server." in out
    assert "failed: broken: a worker ended\nThere is no table of jobs." in out
    written = json.loads(file.read_text())
    assert written["skipped"] == {
        "not-on-pypi": "No matching distribution found for there-is-no-such-package",
        "no-program": "Install redis-server.",
        "no-tables": "no-tables: prepare failed: permission denied for schema public",
    }
    (drain,) = written["scenarios"]
    ((name, (figures,)),) = drain["rounds"].items()
    assert (name, figures["jobs/s"] > 0, list(drain["failed"])) == (OURS, True, ["broken"])
    assert written["server"]["server_version"]


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


MARKING = """
import multiprocessing, threading
from benchmarks.marks import mark, stamp

def job(first):
    for number in range(first, first + 500):
        stamp(number)
        mark()

def child(first):
    threads = [threading.Thread(target=job, args=(first + 500 * each,)) for each in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

mark()  # so that the children inherit the slot of their parent
context = multiprocessing.get_context("fork")
children = [context.Process(target=child, args=(first,)) for first in (0, 2000)]
[each.start() for each in children]
[each.join() for each in children]
"""


def test_marks_of_forked_processes_with_threads_are_all_counted(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    environment = {**os.environ, "BENCHMARK_MARKS": str(marks.path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", MARKING], env=environment, check=True, timeout=60)
    assert marks.count() == 1 + 2 * 4 * 500
    stamps = marks.stamps(4000)
    assert 0 < marks.first() <= min(stamps) <= max(stamps) <= marks.last()
    marks.reset()
    assert (marks.count(), set(marks.stamps(4000))) == (0, {0})
