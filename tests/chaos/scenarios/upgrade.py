"""The previous release and this one together, in both orders, on the tables of this one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

from django.apps import apps
from django.db import connection
from django.db.migrations.state import ProjectState

from django_pgqueue.operations import _with_lock_retry
from tests.support.commands import ROOT, SLOW, Command, django_environment
from tests.support.databases import on_tables_in_use
from tests.support.sessions import open_raw
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.havoc import processes_of
from ..harness.ledger import FOLDER, IN_DOUBT
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from ..harness.worlds import database_of_the_previous_release, lacks_history, last_migration, manage

WEB = Path(__file__).parents[1] / "harness" / "web.py"
RATE = 20.0
"""Jobs that a web process enqueues in a second."""
SERIES = 1_000_000
"""Numbers that a web process may give to its jobs."""
OPEN = 3.0
"""Seconds that a transaction stays open: longer than workers wait for a lock."""
ERRORS = (" ERROR ", "psycopg.", "django.db.", "Error: ")
"""What the log of a worker must not contain, except for the error of the task that fails."""
NEXT = (
    "ALTER TABLE pgqueue_job ADD COLUMN of_next_release integer NOT NULL DEFAULT 7",
    "CREATE FUNCTION _pgqueue_of_next_release() RETURNS integer LANGUAGE sql AS 'SELECT 7'",
)
BACK = ("DROP FUNCTION _pgqueue_of_next_release", "ALTER TABLE pgqueue_job DROP COLUMN of_next_release")
"""What the next release may add, and the way back. This release has perhaps no migration of its own yet."""


class Program(subprocess.Popen[bytes]):
    """A program of ``harness/web.py`` with the code of a folder, against the current databases. It is killed
    at the end of a ``with`` block.
    """

    def __init__(self, stage: Stage, code: Path, name: str) -> None:
        place = 1 + len(list(stage.ledger.folder.glob("*.log")))
        self.log = stage.ledger.folder / f"{name}-{place}.log"
        self.numbers = range(place * SERIES, (place + 1) * SERIES)
        with self.log.open("wb") as output:
            super().__init__(
                [sys.executable, "-P", str(WEB), name, str(self.numbers.start), str(RATE)],
                cwd=code, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**django_environment(code), "PYTHONPATH": str(code), FOLDER: str(stage.ledger.folder)},
            )  # fmt: skip

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.wait()

    def ended(self) -> None:
        """Wait until it has ended without an error."""
        assert self.wait(SLOW) == 0, self.log.read_text()

    def end(self) -> None:
        """Tell it to end, and wait until it has ended without an error."""
        self.send_signal(signal.SIGTERM)
        self.ended()


def upgrade_and_go_back(stage: Stage) -> None:
    """Upgrade from the previous release as the docs say, and then go back to it, all under load."""
    old: Path = stage.world
    with Program(stage, old, "web") as old_web, stage.havoc.fault("upgrade", [], explains=False):
        first = stage.start(code=old)
        _serve(stage, [first], [old_web])
        for command in stage.commands[:-1]:  # of the upgrade before
            stage.end(command)
        manage("migrate", "--verbosity", "0")
        change(NEXT)
        _serve(stage, [first], [old_web])
        with Program(stage, ROOT, "web") as new_web, Program(stage, old, "pages") as old_pages:
            second = stage.start(code=old)  # one that starts on the new tables
            new = stage.start()
            _serve(stage, [first, second, new], [old_web, new_web])
            old_pages.ended()
            with Program(stage, ROOT, "pages") as new_pages:
                migrate_again(stage)
                _serve(stage, [first, second, new], [old_web, new_web])
                stage.end(first)
                _serve(stage, [second, new], [old_web, new_web])
                new_pages.ended()
            stage.end(new)
            _serve(stage, [second], [old_web, new_web])
            new_web.end()
        change(BACK)
        manage("migrate", "--verbosity", "0", "django_pgqueue", last_migration(old))
        _serve(stage, [second], [old_web])
        old_web.end()


def change(statements: tuple[str, ...]) -> None:
    """Run statements as a migration does that locks tables in use."""
    with connection.schema_editor() as editor:
        _with_lock_retry(editor, statements[0], [(statement, None) for statement in statements])


def migrate_again(stage: Stage) -> None:
    """Undo and repeat, in a random order, what migrations do to tables that are in use: indexes and triggers.

    At the first of them, a transaction that has used the tables stays open. If the migration stood in line
    behind it, the workers would, too, and would fail.
    """
    state = ProjectState.from_apps(apps)
    operations = list(on_tables_in_use())
    stage.choice.shuffle(operations)
    with open_raw(autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM pgqueue_job")
        soon = Timer(OPEN, reader.commit)
        soon.start()
        for operation in operations:
            with connection.schema_editor() as editor:
                operation.database_backwards("django_pgqueue", editor, state, state)
                operation.database_forwards("django_pgqueue", editor, state, state)
        soon.join()


def _serve(stage: Stage, commands: list[Command], webs: list[Program]) -> None:
    """Wait until each command has run a job of each web process that was claimed from now on."""
    seen = len(stage.accounts().runs)
    for command in commands:
        pids = processes_of(command)
        for one in webs:
            until(
                lambda: _has_run(stage, one, pids, seen),  # noqa: B023 - called at once
                seconds=PATIENCE,
                what=f"a job of {one.log} runs in {command.process.pid}",
            )


def _has_run(stage: Stage, web: Program, pids: set[int], seen: int) -> bool:
    found = errors(stage)
    assert not found, "\n".join(found)
    assert web.poll() is None, web.log.read_text()
    return any(
        run.number in web.numbers and run.ended and not pids.isdisjoint((run.pid, run.parent))
        for run in stage.accounts().runs[seen:]
    )


def errors(stage: Stage, audit: Audit | None = None) -> list[str]:
    """Return the errors in the logs of the workers, and the transactions that have failed."""
    doubts = [each for each in stage.accounts().transactions if audit and each.outcome == IN_DOUBT]
    return [f"a transaction has failed: {each}" for each in doubts] + [
        f"{log.name}: {line}"
        for log in stage.ledger.folder.parent.glob("worker-*.log")
        for line in log.read_text().splitlines()
        if any(error in line for error in ERRORS) and "the first attempt fails" not in line
    ]


SCENARIOS = [
    Scenario(
        name="upgrade",
        promises=("no-second-run", "old-and-new", "up-during-migrate"),
        faults=(upgrade_and_go_back,),
        commands=0,
        backlog=0,  # the load comes from web processes
        world=database_of_the_previous_release,
        lacks=lacks_history,
        check=errors,
    )
]
