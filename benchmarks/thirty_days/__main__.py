"""Simulate thirty days: ``python -m benchmarks.thirty_days [RATE ...] [--days N] [--json FILE]``.

This starts a PostgreSQL server of its own whose clock can be moved (libfaketime: ``python3 dev.py chaos``
installs it). The clock goes on by an hour, 24 times a day. At each step

    1. the rounds of maintenance are done that any supervisor does (``maintenance.rounds.Rounds``), with their
       own intervals on the simulated time, until none has more to do;
    2. the jobs of this step are enqueued, and a real worker command runs them.

Everything in the database is real: the functions, the ring, the schedules, autovacuum. No row is aged: the
server itself believes that the time has passed. Every evening the worker is replaced, on every other day by
killing it while a job runs. After each day the program measures the tables, and what the server has written
to its log (WAL), how long its processes have worked (CPU), and how long maintenance took.

What is scaled, since 2,592,000,000 jobs do not fit into minutes: of RATE jobs a second, one in ``SAMPLE``
is run. Maintenance does each round once in a step, and not every 10 seconds, so it has fewer chances than in
reality. Statistics have 24 minutes a day, and not 1,440. Autovacuum wakes up every second of the real
time, which is a few times in a simulated hour on a busy machine, and not every minute.

The program ends with exit code 1 if something grows, a schedule has missed a run, a worker or a job is left
over, or a log has an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import cpu
from benchmarks.bench import ROOT, one, rows, set_up
from example_project import embedded
from example_project.embedded_programs import run
from tests.support.machines import Clock, lacks_faketime

STEP = 3_600  # seconds
STEPS = 86_400 // STEP
#: Of so many jobs one is run, for each rate.
SAMPLE = {1: 20, 100: 1_000, 1_000: 5_000}
SETTLED = 10
"""The day by which everything that has a retention has reached it."""
GROWS_BY = 1.15
"""How much larger the database may be at the end than at its largest around that day."""
TURN = 7 * 86_400 / 6  # seconds: the ring turns after a sixth of the retention
ROOM = 512 * 1024
"""The bytes that a small table may grow by."""
SCHEDULES = {"hourly": 24, "six-hourly": 4, "nightly": 1}
_SIZES = """
    SELECT CASE WHEN relname ~ '^pgqueue_job_past_' THEN 'pgqueue_job_past' ELSE relname END AS name,
        sum(pg_total_relation_size(oid))::bigint
    FROM pg_class WHERE relkind = 'r' AND relname ~ '^pgqueue_' GROUP BY 1
"""
_IS_READY = """
    SELECT count(*) FROM pgqueue_worker WHERE started_at > clock_timestamp() - interval '30 seconds'
"""
_BUSY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
_RUNS = """
    SELECT schedule, count(*) FROM pgqueue_schedule_run
    WHERE run_at > to_timestamp(%d) AND run_at <= to_timestamp(%d) AND outcome = 'enqueued' GROUP BY 1
"""
_FINISHED = "SELECT count(*) FROM pgqueue_job WHERE shelf <> 0 AND finished_at < clock_timestamp() - interval"
_SUMS = (
    "SELECT count(*) FROM pgqueue_stat_rollup WHERE span <> 'total' AND start < clock_timestamp() - interval"
)
_NOTES = "SELECT count(*) FROM pgqueue_failure_note WHERE at < clock_timestamp() - interval '1 hour'"
_PASSED = "SELECT count(*) FROM pgqueue_schedule_run WHERE run_at < clock_timestamp() - interval '193 hours'"
#: What must not be left at the end of a day. The ring keeps eight sixths of the retention, and statistics are
#: kept by days.
_LEFT = {
    "dead workers": "SELECT count(*) - 1 FROM pgqueue_worker",
    "jobs of dead workers": "SELECT count(*) FROM pgqueue_job_live WHERE status = 'running'",
    "jobs that wait": "SELECT count(*) FROM pgqueue_job_live WHERE run_after <= clock_timestamp()",
    "windows": "SELECT count(*) FROM pgqueue_window WHERE until < clock_timestamp() - interval '1 hour'",
    "edges": "SELECT count(*) FROM pgqueue_edge",
    "notes of failures": _NOTES,
    "jobs older than the ring": f"{_FINISHED} '226 hours'",
    "failed jobs": f"{_FINISHED} '169 hours' AND status = 'failed'",
    "sums of statistics": f"{_SUMS} '193 hours'",
    "minutes": "SELECT count(*) FROM pgqueue_stat WHERE minute < clock_timestamp() - interval '49 hours'",
    "runs of schedules": _PASSED,
}
#: What the log says about jobs that fail.
_HEALTHY = re.compile(r"ConnectionError|does not answer|Traceback|^\s")


class Month:
    """One simulation."""

    def __init__(self, rate: int, sample: int, clock: Clock, log: Path) -> None:
        from django_pgqueue.maintenance.rounds import Rounds
        from django_pgqueue.postgres.session import connect

        self.rate, self.sample = rate, sample
        self.problems: list[str] = []
        self.days: list[dict[str, Any]] = []
        self._clock, self._log = clock, log
        self._offset = self._number = 0
        self._rounds, self._session = Rounds(), connect("default", name="pgqueue simulation")
        self._worker: subprocess.Popen[bytes] | None = None
        self._upkeep, self._longest, self._done = 0.0, 0.0, 0
        self.turns, self._shelf = 0, 1

    def run(self, days: int) -> None:
        """Run all days."""
        from django_pgqueue.maintenance.rounds import tell_retention
        from django_pgqueue.maintenance.schedules import synchronize

        tell_retention(self._session)
        synchronize("default")
        self._maintain()  # the only search for dead workers here: later, the heartbeats of workers search
        self._start_worker()
        with closing(self._session):
            self._pass(86_400 - _now() % 86_400)  # the days begin at midnight
            for day in range(1, days + 1):
                self._run_day(day)
        self._stop_worker(signal.SIGTERM)

    def _run_day(self, day: int) -> None:
        before = self._counters()
        midnight = _now() // 86_400 * 86_400
        for step in range(1, STEPS + 1):
            self._pass(midnight + step * STEP + 1 - _now())
            self._maintain()
            self._enqueue(self.rate * STEP // self.sample)
            self._settle()
            if step == STEPS - 5:
                self._replace_worker(kill=day % 2 == 0)
        ran = dict(rows(_RUNS % (midnight, midnight + 86_400)))
        if day > 1 and ran != SCHEDULES:
            self.problems.append(f"day {day}: the schedules ran {ran} and not {SCHEDULES}")
        after = self._counters()
        self.days.append({
            "day": day,
            **{name: round(after[name] - before[name], 3) for name in after},
            "longest_round": round(self._longest, 3),
            "sizes": {name: int(size) for name, size in rows(_SIZES)},
            "dead_rows": int(one("SELECT sum(n_dead_tup) FROM pg_stat_user_tables")),
        })  # fmt: skip
        self._longest = 0.0
        self._check_left(day)
        if day in (1, 2, 3) or day % 5 == 0:
            self._report(self.days[-1])

    def _pass(self, seconds: int) -> None:
        """Let the clock go on, while no statement is under way."""
        while self._send(signal.SIGSTOP):
            time.sleep(0.01)  # what it has sent arrives
            if not any(one(_BUSY) for _ in range(2)):
                break
            self._send(signal.SIGCONT)  # it was stopped between two statements
            time.sleep(0.02)
        self._offset += seconds
        self._clock.set(self._offset)
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> bool:
        """Send a signal to all processes of the worker. Return False if there is no worker."""
        if self._worker is None:
            return False
        pids = [self._worker.pid, *cpu.descendants(self._worker.pid)]
        # The supervisor must not find its process suspended, so it goes last.
        for pid in reversed(pids) if number == signal.SIGCONT else pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return True

    def _maintain(self) -> None:
        """Do all rounds that are due, until none has more to do."""
        from django_pgqueue.schedules.fire import NEXT_LOOK, left_out

        began, now = time.monotonic(), float(self._offset)
        # What the heartbeat of a supervisor asks.
        due = self._session.value(f"SELECT {NEXT_LOOK}", left_out(self._rounds.schedules.broken))
        self._rounds.schedules.look_in(due, now - 1)
        while True:
            self._rounds.run(self._session, now)
            if self._rounds.next_round > now + 1.5:
                break
            now = self._rounds.next_round
        shelf = one("SELECT current FROM pgqueue_ring")
        self.turns, self._shelf = self.turns + (shelf != self._shelf), shelf
        took = time.monotonic() - began
        self._upkeep, self._longest = self._upkeep + took, max(self._longest, took)

    def _enqueue(self, count: int) -> None:
        from benchmarks.thirty_days import tasks
        from django_pgqueue import chain, enqueue_many

        rest = max(1, count // 100)
        first = self._number
        calls = [tasks.work.bind(first + each) for each in range(count - 4 * rest)]
        calls += [tasks.fail.bind(first + each) for each in range(rest)]
        calls += [tasks.remind.bind(first + each) for each in range(rest)]
        enqueue_many(calls)
        for each in range(rest):
            chain([tasks.work.bind(first + each), tasks.work.bind(first + each)])
        self._number += count
        self._done += count

    def _settle(self) -> None:
        """Wait until nothing is due, so that the clock goes on while no statement is under way."""
        deadline = time.monotonic() + 60
        left = "SELECT count(*) FROM pgqueue_job_live WHERE run_after <= clock_timestamp()"
        while one(left):
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"Jobs still wait after a minute: {rows('SELECT * FROM pgqueue_job_live LIMIT 3')}"
                )
            time.sleep(0.02)

    def _replace_worker(self, *, kill: bool) -> None:
        if kill:
            from benchmarks.thirty_days import tasks

            tasks.linger.enqueue()
            while not one("SELECT count(*) FROM pgqueue_job_live WHERE status = 'running'"):
                time.sleep(0.01)
        self._stop_worker(signal.SIGKILL if kill else signal.SIGTERM)
        self._start_worker()
        self._pass(60)  # longer than the lease
        self._settle()

    def _start_worker(self) -> None:
        command = [sys.executable, "-m", "django", "runqueueworker", "--processes", "1", "--threads", "2"]
        with self._log.open("ab") as log:
            self._worker = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)
        while not one(_IS_READY):
            time.sleep(0.1)

    def _stop_worker(self, number: signal.Signals) -> None:
        assert self._worker is not None
        if number == signal.SIGKILL:
            self._send(number)
        self._worker.send_signal(number)
        self._worker.wait(60)
        self._worker = None

    def _counters(self) -> dict[str, float]:
        wal = int(one("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"))
        return {"jobs": self._done, "wal": wal, "server_cpu": _server_cpu(), "upkeep": self._upkeep}

    def _check_left(self, day: int) -> None:
        for what, query in _LEFT.items():
            if left := one(query):
                self.problems.append(f"day {day}: {left} {what} are left")

    def check(self, server_log: Path) -> None:
        """Compare the last day with the day by which everything is settled, and read the logs."""
        around = [each["sizes"] for each in self.days[SETTLED - 2 : SETTLED + 2]]
        last = self.days[-1]["sizes"]
        if len(self.days) > SETTLED + 2:
            largest = max(sum(sizes.values()) for sizes in around)
            if sum(last.values()) > GROWS_BY * largest:
                self.problems.append(
                    f"all tables have grown from {largest:,} to {sum(last.values()):,} bytes"
                )
            for name, size in last.items():
                if size > GROWS_BY * (most := max(sizes.get(name, 0) for sizes in around)) + ROOM:
                    self.problems.append(f"{name} has grown from {most:,} to {size:,} bytes")
        if abs(self.turns - len(self.days) * 86_400 / TURN) > 1:
            self.problems.append(f"the ring has turned {self.turns} times")
        ours = [line for line in _lines(self._log, "ERROR|CRITICAL") if not _HEALTHY.search(line)]
        bad = [*_lines(server_log, "ERROR|FATAL|PANIC"), *ours]
        self.problems += [f"log: {line[:200]}" for line in bad[:20]]
        if self.problems:
            print(self._log.read_text(errors="replace")[-5_000:])

    def _report(self, day: dict[str, Any]) -> None:
        sizes = day["sizes"]
        history = sizes["pgqueue_job_past"]
        rest = sum(sizes.values()) - history
        print(
            f"day {day['day']:2}: {day['jobs']:7,.0f} jobs, history {history / 1e6:7.2f} MB,"
            f" other tables {rest / 1e6:6.2f} MB, WAL {day['wal'] / 1e6:7.2f} MB,"
            f" server {day['server_cpu']:6.2f} s of CPU,"
            f" maintenance {day['upkeep']:5.2f} s (longest {1000 * day['longest_round']:4.0f} ms),"
            f" {day['dead_rows']:,} dead rows",
            flush=True,
        )


def _lines(log: Path, pattern: str) -> list[str]:
    return [line for line in log.read_text(errors="replace").splitlines() if re.search(pattern, line)]


def _now() -> int:
    return int(one("SELECT floor(extract(epoch FROM clock_timestamp()))"))


def _server_cpu() -> float:
    """Return the seconds that the server and all its processes have worked, also those that have ended."""
    data = str(one("SHOW data_directory"))
    first = int(Path(data, "postmaster.pid").read_text().split("\n")[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    fields = [_stat(pid) for pid in (str(first), *children)]
    ticks = sum(sum(map(int, each[11:13])) for each in fields if each) + sum(map(int, fields[0][13:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return []


@contextmanager
def server_with_a_clock() -> Iterator[tuple[str, Clock, Path]]:
    """Start a server whose clock can be moved. Yield its address, its clock, and its log."""
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-days-"))
    folder.chmod(0o755)
    clock = Clock(folder / "clock")
    # The user that runs the server can read it there.
    library = str(shutil.copy(clock.env["LD_PRELOAD"], folder))
    env = {**clock.env, "LD_PRELOAD": library}
    (folder / "clock").chmod(0o644)
    options = {"autovacuum_naptime": "1s", "checkpoint_timeout": "1d", "max_wal_size": "4GB"}

    def run_with_clock(program: str, *arguments: str) -> str:
        is_start = program == "pg_ctl" and arguments[0] == "start"
        return run(program, *arguments, env=env if is_start else {})

    try:
        with (
            patch.object(embedded, "run", run_with_clock),
            patch.dict(embedded.SETTINGS, options),
        ):
            url = embedded.ensure_server(folder / "server", durable=False)
        data = Path(json.loads((folder / "server" / "server.json").read_text())["data"])
        yield url, clock, data / "server.log"
    finally:
        embedded.remove_server(folder / "server")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Simulate in one process for each rate, since Django keeps its settings."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thirty_days")
    parser.add_argument("rates", nargs="*", type=int, default=[*SAMPLE], help="jobs a second")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--sample", type=int, help="run one job in so many")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args()
    if lacks := lacks_faketime():
        raise SystemExit(f"This needs {lacks}.")
    if len(given.rates) > 1:
        raise SystemExit(max(_in_process(rate, given) for rate in given.rates))
    simulate(given.rates[0], given.sample or SAMPLE.get(given.rates[0], 1), given.days, given.json)


def _in_process(rate: int, given: argparse.Namespace) -> int:
    more = ["--json", str(given.json.with_stem(f"{given.json.stem}-{rate}"))] if given.json else []
    more += ["--sample", str(given.sample)] if given.sample else []
    command = [sys.executable, "-m", "benchmarks.thirty_days", str(rate), "--days", str(given.days), *more]
    return subprocess.run(command, check=False).returncode


def simulate(rate: int, sample: int, days: int, file: Path | None = None) -> None:
    """Simulate one rate. Raise SystemExit with the problems, if there are any."""
    began = time.monotonic()
    with server_with_a_clock() as (url, clock, server_log):
        os.environ["DATABASE_URL"] = url
        set_up("benchmarks.thirty_days.settings")
        print(f"{rate:,} jobs/s, of which one in {sample:,} is run, for {days} days", flush=True)
        log = server_log.with_name("worker.log")
        month = Month(rate, sample, clock, log)
        month.run(days)
        month.check(server_log)
    print(f"{days} days in {time.monotonic() - began:.0f} s, {len(month.problems)} problems", flush=True)
    if file:
        figures = {"rate": rate, "sample": sample, "days": month.days, "problems": month.problems}
        file.write_text(json.dumps(figures, indent=1))
    if month.problems:
        raise SystemExit("\n".join(month.problems))


if __name__ == "__main__":
    main()
