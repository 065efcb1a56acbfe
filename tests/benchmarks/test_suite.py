"""The benchmark suite: its options, a whole run at its smallest, and what it does when a queue fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from benchmarks import __main__ as suite, beside, contender as contender_module, environments, scenarios
from benchmarks.contestants import OURS, PEERS, load
from benchmarks.contestants.contract import CannotTakePartError, Contestant, Kind
from benchmarks.marks import Marks
from benchmarks.progress import Progress
from benchmarks.public.adapter import PgQueue
from benchmarks.public.contract import OF_THE_QUEUE
from benchmarks.public.latencies import Latencies
from benchmarks.public.phases import Phase
from benchmarks.public.samples import Sample
from benchmarks.public.summary import Span, summarize
from benchmarks.public.table import table
from benchmarks.report import as_json, show
from benchmarks.scenario import Bench, Result, Scenario, Target, Variant
from django_pgqueue.models import Job
from tests.support.jobs import sql
from tests.support.waiting import until

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
        (["figures"], PEERS),
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


def ends_with(words: str) -> list[str]:
    return [sys.executable, "-c", f"raise SystemExit({words!r})"]


class Broken(Contestant):
    """A queue whose workers end with an error. Its other methods do nothing."""

    name = "broken"
    pace = 100
    slots = 1
    unfinished = "SELECT 1"
    clear = "SELECT 1"

    def program(self) -> list[str]:
        return [sys.executable, "-c", "print(0)"]

    def workers(self, kind: Kind) -> list[list[str]]:
        return [ends_with("There is no table of jobs.")]


class NotOnPyPI(Broken):
    name = "not-on-pypi"
    requirements = ("there-is-no-such-package==1.0",)


class NoTables(Broken):
    name = "no-tables"

    def program(self) -> list[str]:
        return ends_with("permission denied for schema public")


class NoProgram(Broken):
    name = "no-program"

    def services(self, folder: Path) -> Any:
        raise CannotTakePartError("Install redis-server.")


FAILING = {each.name: each for each in (Broken, NotOnPyPI, NoProgram, NoTables)}


@pytest.fixture
def with_failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Add the contestants above, and remove the databases of a run at the end."""

    def fail_to_install(command: Sequence[str]) -> None:
        raise environments.CannotInstallError("No matching distribution found for there-is-no-such-package")

    monkeypatch.setattr(
        contender_module, "load", lambda name: FAILING[name]() if name in FAILING else load(name)
    )
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "environments")
    monkeypatch.setattr(environments, "_run", fail_to_install)
    # Other tests use the same server at the same time.
    prefix = f"benchmark_{os.environ.get('PYTEST_XDIST_WORKER', '')}_"
    monkeypatch.setattr(contender_module, "PREFIX", prefix)
    yield
    for name in (OURS, *FAILING):
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{prefix}{name}" WITH (FORCE)')


@pytest.mark.usefixtures("with_failing")
def test_our_queue_is_measured_although_others_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with_failing = replace(scenarios.load("drain"), contestants=(*FAILING,))
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


def example(name: str, measure: Callable[[str], dict[str, float]], *names: str) -> Result:
    """Return a scenario whose variants have these names, and are measured by this function."""
    found = [Variant(each, partial(measure, each)) for each in names or (name,)]
    return Result(scenario(name=name, variants=lambda bench: found))


def test_a_variant_that_fails_is_not_run_again_and_the_others_go_on() -> None:
    ran: list[str] = []

    def measure(name: str) -> dict[str, float]:
        ran.append(name)
        if name == "theirs" and ran.count(name) == 2:
            raise contender_module.StuckError("no job ran for a minute")
        return {RATE: 1.0}

    results = [example("example", measure, "theirs", "ours")]
    (measured,) = suite.one_by_one(results, Bench({}, 1), suite.parse(["--rounds", "3"]))
    assert ran == ["theirs", "ours", "theirs", "ours", "ours"]
    assert measured.failed == {"theirs": "no job ran for a minute"}
    assert {name: len(rounds) for name, rounds in measured.rounds.items()} == {"theirs": 1, "ours": 3}


def test_rounds_of_all_scenarios_are_measured_in_turn_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that would end too late are left out, and shorter ones are not."""
    ran: list[str] = []
    seconds = {"long": 10.0, "short": 2.0}
    monkeypatch.setattr("benchmarks.__main__.time.monotonic", lambda: sum(map(seconds.__getitem__, ran)))

    def measure(name: str) -> dict[str, float]:
        ran.append(name)
        return {RATE: 1.0}

    results = [example(name, measure) for name in seconds]
    yielded = list(suite.in_turn(results, Bench({}, 1), suite.parse([]), 31))
    assert ran == ["long", "short", "long", "short", "short", "short", "short"]
    assert [result.scenario.name for result in yielded] == ran
    assert [len(each.rounds[each.scenario.name]) for each in results] == [2, 5]


@contextmanager
def enqueuers(enqueue: str, folder: Path) -> Iterator[beside.Program]:
    """Run a program with three processes that enqueue with this expression."""
    code = (
        "import sys; from contextlib import contextmanager; from benchmarks.contestants import program\n"
        "class Queue:\n"
        "    preload = lambda self: None\n"
        f"    putting = contextmanager(lambda self, kind: (yield lambda number: {enqueue}))\n"
        "program.load = lambda name: Queue(); program.main(['queue', 'produce', '3'])"
    )
    with beside.beside([sys.executable, "-c", code], {**os.environ}, folder / "log") as started:
        yield started


def test_processes_that_enqueue_begin_and_end_together(tmp_path: Path) -> None:
    """Each prints a line of what it has enqueued in its time."""
    with enqueuers("None", tmp_path) as started:
        assert started.answer() == ["connected"]
        started.tell("begin")
        started.tell("end")
        for _ in range(3):
            count, seconds = map(float, started.answer())
            assert (count >= 0, seconds > 0) == (True, True)
        assert started.answer() == ["over"]
    with (
        enqueuers("1 / 0", tmp_path) as started,
        pytest.raises(beside.ProgramError, match="A process that enqueues has failed"),
    ):
        started.answer()


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


# --- The statistics of a scenario's rounds and of the public harness, and how they are shown and written


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


# --- The adapter of the public harness speaks the contract of that harness, started as the harness starts it


SLOW = 60.0  # seconds; starting processes takes a while on a busy machine

#: The metrics that the harness demands, and those of the tables that are made from them, with their windows.
WINDOWS = {
    "enqueue_rate": 0.25,
    "completion_rate": 0.25,
    **dict.fromkeys(OF_THE_QUEUE, 0.0),
    **{f"{kind}_p{part}_ms": 30.0 for kind in ("claim", "subscriber", "end_to_end") for part in (50, 95, 99)},
}


class Adapter:
    """The running adapter, and the lines that it has written so far."""

    def __init__(self, url: str, **environment: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.public.adapter"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "DATABASE_URL": url, "SAMPLE_EVERY_S": "0.25", **environment},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.lines.extend(json.loads(line) for line in lines)  # fails at a line that is not JSON

    def end(self) -> int:
        """Wait until the adapter has ended and nobody holds its standard output. Return its exit code."""
        code = self.process.wait(SLOW)
        self._reader.join(SLOW)
        assert not self._reader.is_alive()
        assert self.process.stdin is not None
        self.process.stdin.close()
        return code


@pytest.fixture
def url(transactional_db: None) -> str:
    settings = connections["default"].settings_dict
    host = f"{settings['HOST']}:{settings['PORT']}" if settings["PORT"] else settings["HOST"]
    return f"postgresql://{settings['USER']}:{settings['PASSWORD']}@{host}/{settings['NAME']}"


def sessions(since: datetime) -> int:
    """Return how many sessions the database has that have begun since then. Those of an earlier test may take
    a while to end on a busy machine.
    """
    return int(
        sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND backend_start > %s",
            since,
        )
    )


def test_the_adapter_speaks_the_contract(url: str) -> None:
    began = sql("SELECT clock_timestamp()")
    adapter = Adapter(url, PRODUCER_MODE="fixed", PRODUCER_RATE="40", WORKER_COUNT="1")
    until(lambda: [line.get("metric") for line in adapter.lines].count("end_to_end_p99_ms") > 2, seconds=SLOW)
    adapter.process.send_signal(signal.SIGTERM)
    assert adapter.end() == 0
    until(lambda: not sessions(began), seconds=SLOW, what="no process is left")

    descriptor, *samples = adapter.lines
    manifest = json.loads((ROOT / "benchmarks" / "public" / "adapter.json").read_text())
    assert descriptor["kind"] == "descriptor"
    for key in ("system", "event_tables", "event_indexes", "extensions"):
        assert descriptor[key] == manifest[key]
    for key in ("version", "schema_version", "db_name", "started_at"):
        assert isinstance(descriptor[key], str)
    metrics = set()
    for sample in samples:
        assert datetime.fromisoformat(sample.pop("t")).utcoffset() is not None
        metric, value = sample.pop("metric"), sample.pop("value")
        assert isinstance(value, int | float)
        assert value >= 0
        assert sample == {
            "system": "django-pgqueue", "kind": "adapter", "subject_kind": "adapter", "subject": "",
            "instance_id": 0, "window_s": WINDOWS[metric],
        }  # fmt: skip
        metrics.add(metric)
    assert metrics == set(WINDOWS)


def test_the_manifest_names_tables_and_indexes_that_exist(transactional_db: None) -> None:
    for relation in [*PgQueue.manifest.event_tables, *PgQueue.manifest.event_indexes]:
        assert sql("SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)", relation) in "ri", relation


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_harness_paces_the_producer_and_workers_die_with_a_killed_adapter(url: str) -> None:
    began = sql("SELECT clock_timestamp()")
    adapter = Adapter(
        url, PRODUCER_PACING="harness", PRODUCER_RATE="1000", WORKER_COUNT="1", BENCH_INSTANCE_ID="1"
    )
    # A partial line is no token yet, and the end of the input is not the end of the adapter.
    assert adapter.process.stdin is not None
    adapter.process.stdin.write("ENQUEUE 3\nnonsense\nENQUEUE 4\nENQUEUE 5")
    adapter.process.stdin.flush()
    until(lambda: Job.objects.filter(status=Job.Status.DONE).count() == 7, seconds=SLOW)
    assert sessions(began)
    adapter.process.kill()
    assert adapter.end() == -signal.SIGKILL
    until(lambda: not sessions(began), seconds=SLOW, what="no process is left")
    assert Job.objects.count() == 7
    # Another replica reports what describes the whole queue.
    assert not OF_THE_QUEUE & {line.get("metric") for line in adapter.lines}


@pytest.mark.parametrize("length", [0, 1, 10, 100])
@pytest.mark.parametrize("name", [OURS, *PEERS])
def test_each_run_has_jobs_left_after_all_processes_have_started(name: str, length: int) -> None:
    contestant = load(name)
    jobs = contestant.jobs(1.2, length)
    slots = contestant.slots if length else 1
    assert 1 <= -(-contestant.starting * jobs // slots) * slots < jobs
    assert jobs % slots == 0
