"""Lose the leader of three PostgreSQL servers under Patroni, while jobs come in, and count what that costs.

    python3 dev.py failover                     # asynchronous, then synchronous and strict
    python3 dev.py failover --etcd              # with etcd, as most clusters have it

Which server leads is decided by Patroni's own raft, which needs no other program. With --etcd, each machine
has a member of etcd in its place, which is the program of this name on the PATH (Debian: apt-get install
etcd-server).

Each fault is made once: a switchover; a leader whose machine loses its power; the same after its
standbys have not received anything for a second; and a leader that is stopped, as a machine that hangs, and
goes on after another server leads. A worker command and a client connect by a DSN of several hosts. The
ledger is outside the servers. It prints what was confirmed to the client and is lost, what has run again, and
the longest time in which no enqueue was confirmed and no job ended.

The exit code is 1 if synchronous replication has lost anything, if an atomic job has its effect twice or not
at all, or if a job is left.
"""

# Every forked command imports this module as its main module, so it imports nothing of Django on top.
from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from ..harness.stage import Stage
    from .cluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
RATE, BACKLOG = 100.0, 500
ANSWER = 5.0  # seconds; then a client gives up, as a web server ends a request
AWAY = 10.0  # seconds until a machine that was lost is back
HANGS = 90.0  # the same for one that hangs: a worker gives its session up after 75
QUIET = 5.0  # seconds of work between two faults


def main(arguments: list[str]) -> int:
    """Run each mode, and print its figures."""
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="dev.py failover", description=about, epilog=rest, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--etcd", action="store_true", help="let etcd decide who leads, not Patroni's raft")
    with_etcd = parser.parse_args(arguments).etcd
    if with_etcd and shutil.which("etcd") is None:
        parser.error("there is no program etcd on the PATH (Debian: apt-get install etcd-server)")
    os.environ.setdefault("DATABASE_URL", "postgresql://postgres@127.0.0.1:1/postgres")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    print(_versions(with_etcd), flush=True)
    folder = ROOT / "var" / f"failover-{os.getpid()}"
    wrong = ["atomic effects missing", "atomic effects repeated", "left"]
    found = _perform(False, with_etcd, folder / "asynchronous")
    is_good = not any(found[name] for name in wrong)
    found = _perform(True, with_etcd, folder / "synchronous")
    is_good &= not any(found[name] for name in [*wrong, "lost"])
    if is_good:
        shutil.rmtree(folder)
    return 0 if is_good else 1


def _versions(with_etcd: bool) -> str:
    from importlib.metadata import version

    from example_project.embedded_programs import run

    votes = "its own raft"
    if with_etcd:
        said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
        votes = f"etcd {said.split()[2]}"
    return f"{run('postgres', '--version').strip()}, Patroni {version('patroni')} with {votes}"


def _perform(is_synchronous: bool, with_etcd: bool, folder: Path) -> dict[str, int]:
    """Run one mode on servers of its own, print its figures, and return the counts."""
    from django.core.management import call_command
    from django.db import connections

    from tests.support.commands import commands_in

    from ..harness.scenario import Scenario
    from ..harness.stage import Stage
    from ..harness.worlds import at_database
    from .cluster import cluster_in

    plan = Scenario("failover", (), commands=1, processes=2, rate=RATE, backlog=BACKLOG)
    with (
        cluster_in(folder, is_synchronous=is_synchronous, with_etcd=with_etcd) as cluster,
        at_database(**cluster.address()),
        commands_in(folder, prints_logs=False) as start,
    ):
        call_command("migrate", run_syncdb=True, verbosity=0)
        stage = Stage(start, folder, cluster, plan, random.Random(1))
        stage.start_all()
        with _impatient(), stage.load.running():
            faults = [_fault(stage, act) for act in (switchover, lost, lost_behind, hangs)]
            time.sleep(QUIET)
        connections.close_all()
        with suppress(AssertionError):  # what is left is counted
            stage.all_over()
        found = _losses(stage)
        for command in list(stage.commands):
            stage.end(command)
    counts = ", ".join(f"{count:,} {name}" for name, count in found.items())
    print(f"{'Synchronous, strict' if is_synchronous else 'Asynchronous'}: {counts}", *faults, sep="\n  ")
    sys.stdout.flush()
    return found


def switchover(cluster: Cluster) -> None:
    """A switchover"""
    cluster.switch_over()


def lost(cluster: Cluster) -> Callable[[], None]:
    """A lost machine"""
    return _lose(cluster, 0.0)


def lost_behind(cluster: Cluster) -> Callable[[], None]:
    """A lost machine whose standbys are a second behind"""
    return _lose(cluster, 1.0)


def hangs(cluster: Cluster) -> Callable[[], None]:
    """A machine that hangs"""
    leader = cluster.leader()
    assert leader is not None
    leader.send(signal.SIGSTOP)
    return lambda: leader.send(signal.SIGCONT)


def _lose(cluster: Cluster, behind: float) -> Callable[[], None]:
    leader = cluster.leader()
    assert leader is not None
    if behind:
        leader.send(signal.SIGSTOP, only="walsender")
        time.sleep(behind)
    leader.kill()
    return leader.start


def _fault(stage: Stage, act: Callable[[Any], Callable[[], None] | None]) -> str:
    """Make a fault, wait until work goes on and all machines are back, and say how long things took."""
    from django.db import connections

    from tests.support.waiting import until

    from ..harness.ledger import longest_gap
    from ..harness.stage import PATIENCE

    cluster, name = stage.world, (act.__doc__ or "").strip()
    cluster.whole()
    time.sleep(QUIET)
    old, began = cluster.leader(), time.monotonic()
    with stage.havoc.fault(name):
        bring_back = act(cluster)
        cluster.other_leader(old)
        led = time.monotonic()
        if bring_back:
            time.sleep(HANGS if act is hangs else AWAY)
            bring_back()
    connections.close_all()
    back = time.monotonic()
    until(
        lambda: all(any(moment > back for moment in moments) for moments in _moments(stage)),
        seconds=PATIENCE,
        what="work goes on",
    )
    cluster.whole()
    enqueued, ended = (longest_gap(moments, began, time.monotonic()) for moments in _moments(stage))
    leads = f"another leader after {led - began:.1f} s"
    print(f"  {name}: {leads}", file=sys.stderr, flush=True)
    return f"{name}; {leads}; no enqueue for {enqueued:.1f} s; no job ended for {ended:.1f} s"


def _moments(stage: Stage) -> tuple[list[float], list[float]]:
    """Return when an enqueue was confirmed, and when a job came to its end."""
    from ..harness.ledger import COMMITTED

    accounts = stage.accounts()
    return (
        [each.answered for each in accounts.transactions if each.answered and each.outcome == COMMITTED],
        [run.ended for run in accounts.runs if run.ended],
    )


def _losses(stage: Stage) -> dict[str, int]:
    from django_pgqueue.models import Job
    from tests.app.ledger_tasks import ATOMIC, atomic_effect
    from tests.app.models import Entry

    from ..harness.ledger import losses

    atomic = Job.objects.filter(task_path=atomic_effect.module_path)
    return losses(
        stage.accounts(),
        dict(Job.objects.values_list("args__0", "status")),
        set(atomic.values_list("args__0", flat=True)),
        map(int, Entry.objects.filter(key=ATOMIC).values_list("note", flat=True)),
    )


@contextmanager
def _impatient() -> Iterator[None]:
    """Let the connections of this process give up on a server that does not answer, which TCP does not
    notice: the system of a machine whose processes are stopped acknowledges what arrives.
    """
    import psycopg

    from django_pgqueue.postgres import liveness

    connect = liveness.BoundedConnection.connect
    with patch.object(psycopg, "connect", connect), patch.object(liveness, "DEADLINE", ANSWER):
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
