"""A ledger over three shards: one is added and one drained, while producers, workers and kills go on.

    python3 dev.py shards --seconds 120 --seed 7

Producers enqueue calls that are spread over the shards, and calls that the relay hands over from transactions
on the first shard; a tenth of these is rolled back. Each call leaves one row on its shard. The workers,
their processes and the servers are killed at random. After 40 % of the time, a third shard is added, and
after 70 %, the second one is drained with ``--move``. At the end, each committed call must have left one row,
each call in doubt at most one, and a call that was rolled back none. The exit code is 1 if one has not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.commands import Command
    from tests.support.servers import OwnServer

ROOT = Path(__file__).resolve().parents[2]
SHARDS = ("s0", "s1", "s2")
BEFORE, AFTER = SHARDS[:2], SHARDS
PATIENCE = 240.0
"""Seconds until the last job must have ended."""
COMMITTED, ROLLED_BACK, IN_DOUBT = "committed", "rolled back", "in doubt"


def main(arguments: list[str]) -> int:
    """Run it, and print what the ledger says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long calls are enqueued (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats the choices")
    options = parser.parse_args(arguments)
    folder = ROOT / "var" / f"test-{os.getpid()}-shards"
    folder.mkdir(parents=True)
    with servers_in(folder) as servers:
        problems = Ledger(servers, folder, random.Random(options.seed)).run(options.seconds)
    print(*problems, sep="\n")
    print(f"{'NOT BALANCED' if problems else 'balanced'} (--seed {options.seed})")
    if not problems:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if problems else 0


@contextmanager
def servers_in(folder: Path) -> Iterator[dict[str, OwnServer]]:
    """Run a server for each shard, and set up Django with them."""
    import environ

    from example_project.embedded import ensure_server, remove_server

    try:
        found = {}
        for name in SHARDS:
            url = ensure_server(folder / name, durable=False)
            found[name] = {**environ.Env.db_url_config(url), "ENGINE": "django.db.backends.postgresql"}
        os.environ["TEST_DATABASES"] = json.dumps({"default": found["s0"], "other": found["s1"], **found})
        os.environ["TEST_PGQUEUE"] = json.dumps({"SHARDS": BEFORE, "CRASH_LIMIT": 1000})
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.processes.settings"
        import django

        django.setup()
        from tests.support.servers import OwnServer

        yield {name: OwnServer(folder / name) for name in SHARDS}
    finally:
        for name in SHARDS:
            remove_server(folder / name)


class Ledger:
    """What was enqueued, and the commands that run it."""

    def __init__(self, servers: dict[str, OwnServer], folder: Path, choice: random.Random) -> None:
        self._servers, self._folder, self._choice = servers, folder, choice
        self._calls: dict[int, str] = {}  # how the transaction of each has ended
        self._over = Event()
        self._commands: list[Command] = []
        self._shards: tuple[str, ...] = BEFORE
        self._faults: Counter[str] = Counter()

    def run(self, seconds: float) -> list[str]:
        """Enqueue, kill, add and drain. Return what is wrong at the end."""
        from tests.support.commands import commands_in

        for name in BEFORE:
            self._shard("add", name)
        with commands_in(self._folder, prints_logs=False) as self._start:
            self._commands = [self._begin() for _ in range(2)]
            producers = [Thread(target=self._produce, args=(part,)) for part in range(2)]
            for each in producers:
                each.start()
            acts = {0.4: self._add, 0.7: self._drain}
            began = time.monotonic()
            while (share := (time.monotonic() - began) / seconds) < 1:
                for at in [at for at in acts if share >= at]:
                    acts.pop(at)()
                self._fault()
                time.sleep(self._choice.uniform(0.3, 1.5))
            for act in acts.values():
                act()
            self._over.set()
            for each in producers:
                each.join()
            live = self._settle()
        outcomes = Counter(self._calls.values())
        print(f"{len(self._calls):,} calls: {dict(outcomes)}; faults: {dict(self._faults)}")
        return live or self._problems()

    # -- producers

    def _produce(self, part: int) -> None:
        from django.db import Error, connections

        choice, number = random.Random(f"{part}"), part
        while not self._over.is_set():
            number += 2
            self._calls[number] = IN_DOUBT
            try:
                self._calls[number] = self._enqueue(number, choice)
            except Error:  # its server is down, or has crashed at the commit
                connections.close_all()
                time.sleep(0.1)
            time.sleep(choice.uniform(0, 0.05))
        connections.close_all()

    @staticmethod
    def _enqueue(number: int, choice: random.Random) -> str:
        """Enqueue a call that is spread, or relayed from a transaction, which may be rolled back."""
        from django.db import transaction

        from django_pgqueue import enqueue, shard_for
        from tests.app.ledger_tasks import mark

        if choice.random() < 0.6:
            enqueue(mark, number, choice.choice([0.0, 0.0, 0.05]))
            return COMMITTED
        is_rolled_back = choice.random() < 0.1
        with transaction.atomic(using="s0"):
            enqueue(mark.using(relay=shard_for(str(number)), database="s0"), number)
            transaction.set_rollback(is_rolled_back, using="s0")
        return ROLLED_BACK if is_rolled_back else COMMITTED

    # -- faults

    def _begin(self) -> Command:
        arguments = ("--processes", str(len(self._shards)), "--threads", "4")
        command: Command = self._start(*arguments, SHARDS=self._shards, CRASH_LIMIT=1000)
        return command

    def _restart(self) -> None:
        """Start the commands again that have ended, as systemd does: a server was down when they started."""
        for place, command in enumerate(self._commands):
            if command.process.poll() is not None:
                self._faults["ended"] += 1
                self._commands[place] = self._begin()

    def _fault(self) -> None:
        self._restart()
        acts = (self._kill_process, self._kill_process, self._kill_command, self._crash_server)
        act = self._choice.choice(acts)
        self._faults[act.__name__.lstrip("_")] += 1
        act()

    def _kill_process(self) -> None:
        from tests.chaos.harness.havoc import descendants

        command = self._choice.choice(self._commands)
        if found := sorted(descendants(command.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(self._choice.choice(found), signal.SIGKILL)

    def _kill_command(self) -> None:
        command = self._choice.choice(self._commands)
        command.process.kill()
        command.process.wait()
        self._restart()

    def _crash_server(self) -> None:
        server = self._servers[self._choice.choice(self._shards)]
        server.stop("immediate")
        time.sleep(self._choice.uniform(0.0, 1.0))
        server.start()

    # -- shards

    def _add(self) -> None:
        from django.conf import settings
        from django.core.signals import setting_changed

        self._shard("add", "s2")
        self._shards = AFTER
        old, self._commands = self._commands, [self._begin() for _ in self._commands]
        for command in old:
            command.send(signal.SIGTERM)
            command.wait()
        settings.PGQUEUE = {**settings.PGQUEUE, "SHARDS": AFTER}
        setting_changed.send(None, setting="PGQUEUE", value=settings.PGQUEUE, enter=True)

    def _drain(self) -> None:
        from django_pgqueue.tasks import shards

        self._shard("drain", "s1", "--move")
        shards.forget()  # as all other processes do within ten seconds

    @staticmethod
    def _shard(*arguments: str) -> None:
        """Run the command, again and again until the servers are back."""
        from django.core.management import CommandError, call_command
        from django.db import Error, connections

        for _ in range(50):
            try:
                call_command("pgqueue", "shard", *arguments, stdout=sys.stdout)
            except (Error, CommandError) as error:
                print(f"again: {str(error).splitlines()[0]}")
                time.sleep(0.2)
            else:
                return
            finally:
                connections.close_all()
        raise AssertionError("the servers do not come back")

    # -- the end

    def _settle(self) -> list[str]:
        """Wait until no job is live, and stop the commands. Return what is left."""
        from django.db import connections

        from django_pgqueue.models import Job
        from tests.support.waiting import until

        def live() -> dict[str, int]:
            self._restart()
            counts = {name: Job.objects.using(name).filter(shelf=0).count() for name in SHARDS}
            return {name: count for name, count in counts.items() if count}

        with suppress(AssertionError):
            until(lambda: not live(), seconds=PATIENCE)
        left = live()
        for command in self._commands:
            command.send(signal.SIGTERM)
            command.wait()
        connections.close_all()
        return [f"live jobs are left: {left}"] if left else []

    def _problems(self) -> list[str]:
        from django_pgqueue.models import Job
        from tests.app.ledger_tasks import MARK
        from tests.app.models import Entry

        notes = {name: Entry.objects.using(name).filter(key=MARK).values_list("note", flat=True)
                 for name in SHARDS}  # fmt: skip
        marks = Counter(int(note) for found in notes.values() for note in found)
        print(f"rows: { {name: len(found) for name, found in notes.items()} }")
        allowed = {COMMITTED: (1,), ROLLED_BACK: (0,), IN_DOUBT: (0, 1)}
        wrong = [
            f"call {number}, {outcome}, has left {marks[number]} rows"
            for number, outcome in self._calls.items() if marks[number] not in allowed[outcome]
        ]  # fmt: skip
        failed = [
            f"job {name}:{pk} failed: {errors[-1:]}"
            for name in SHARDS
            for pk, errors in Job.objects.using(name).filter(status="failed").values_list("pk", "errors")[:5]
        ]
        return wrong[:20] + failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
