"""The benchmark suite: its options, its marks, and what it does when a queue fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from benchmarks import __main__ as suite
from benchmarks import contender as contender_module
from benchmarks import environments, scenarios
from benchmarks.contestants import MORE_PEERS, OURS, PEERS, load
from benchmarks.contestants.contract import CannotTakePartError, Contestant
from benchmarks.marks import Marks
from benchmarks.scenario import Bench, Variant

from .examples import RATE, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]

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
    assert names == [OURS, "redis", *peers]


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
    # Other tests use the same server at the same time.
    prefix = f"benchmark_{os.environ.get('PYTEST_XDIST_WORKER', '')}_"
    monkeypatch.setattr(contender_module, "PREFIX", prefix)
    yield
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for name in (OURS, *FAILING):
            connection.execute(f'DROP DATABASE IF EXISTS "{prefix}{name}" WITH (FORCE)')


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


def test_without_ours_there_is_nothing_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, server: str) -> None:
        raise contender_module.StuckError("prepare failed: connection refused")

    monkeypatch.setattr(suite, "Contender", fail)
    with pytest.raises(SystemExit, match="nothing to compare: prepare failed: connection refused"):
        suite.enter([OURS, "pgqueuer-100"], "postgresql://nowhere")


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
    with_broken = replace(scenarios.load("drain"), contestants=("broken",))
    monkeypatch.setattr(scenarios, "load", lambda name: with_broken)
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
