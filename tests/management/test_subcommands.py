"""``manage.py pgqueue``: how it finds its subcommands, reads their options, and ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from functools import cache
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, ManagementUtility, call_command, load_command_class
from django.core.management.base import CommandParser, OutputWrapper
from django.db import OperationalError, connection, connections

from django_pgqueue import task
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import _arguments, _parser
from django_pgqueue.management._arguments import duration, seconds, since
from django_pgqueue.management._conditions import warn_of_unknown_queues
from django_pgqueue.management._output import Output, Table, print_json
from django_pgqueue.management._parser import argument
from django_pgqueue.management.commands import pgqueue
from django_pgqueue.models import Job, Worker
from django_pgqueue.monitoring.spans import DAY, HOUR, WEEK
from django_pgqueue.tasks.registry import declared_queues, queues_in_use
from tests.admin.test_hostile_texts import HOSTILE, SHORT, make_rows
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory, ago
from tests.support.jobs import sql

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"

pytestmark = pytest.mark.django_db(databases=["default", "other"])


class Echo(SimpleNamespace):
    """A subcommand that prints its options, or raises an error."""

    help = "Print the options"
    error: Exception | None = None
    has_json = False
    shards = "one"

    arguments = (argument("--times", type=int, default=1),)

    def run(self, options: dict[str, Any]) -> Output:
        if self.error is not None:
            raise self.error
        return Output([" ".join(str(options[name]) for name in ("database", "times", "verbosity"))])


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    subcommand = Echo()
    monkeypatch.setattr(pgqueue, "found", lambda: {"echo": subcommand})
    monkeypatch.setattr(sys.modules[__name__], "COMMAND", pgqueue.Command())
    return subcommand


class Command(pgqueue.Command):
    """Makes the parsers of its subcommands once, because this takes longer than most of them."""

    @cache  # noqa: B019 - there is one
    def create_parser(self, *names: str, **options: Any) -> CommandParser:
        return super().create_parser(*names, **options)


COMMAND: pgqueue.Command = Command()


def run(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(COMMAND, *arguments, stdout=out, **options)
    return out.getvalue().strip()


def exit_code(*arguments: str, command: str = "pgqueue") -> Any:
    """Of a program that is nothing but the command."""
    try:
        ManagementUtility(["manage.py", command, *arguments]).execute()
    except SystemExit as ended:
        return ended.code
    return 0


#: What ends with each exit code; more in `REFUSED` of `test_output`. With 130 and 141, which any subcommand
#: may: in tests of their own below.
ENDS = {
    0: """
        pgqueue | pgqueue status | pgqueue health | pgqueue jobs --status failed | pgqueue queues
        pgqueue limits | pgqueue workers | pgqueue tasks | pgqueue pauses | pgqueue schedules
        pgqueue failures | pgqueue stats | pgqueue database | pgqueue top --once | pgqueue roles
        pgqueue metrics | pgqueue cancel --queue mail --yes | pgqueue retry --status failed --dry-run
        pgqueue --help | pgqueue jobs --help | runqueueworker --help
    """,
    1: """
        pgqueue status --database other | pgqueue health --database other | pgqueue health --workers 9
        pgqueue why 77 | pgqueue run-here 77 | pgqueue stack 77
    """,
    2: """
        pgqueue jbos | pgqueue --jsn | pgqueue jobs --status faild | pgqueue health --age soon
        pgqueue cancel | runqueueworker --zzz | runqueueworker --threads 0
        runqueueworker --database nowhere | runqueueworker --one-process --threads 2
    """,
}


def test_exit_codes(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "close_all", lambda: None)  # with which a command line ends
    ours = Command()
    monkeypatch.setattr(
        "django.core.management.load_command_class",
        lambda app, name: ours if name == "pgqueue" else load_command_class(app, name),
    )
    WorkerFactory.create(heartbeat_at=ago(hours=-1))  # it does not fall silent meanwhile
    JobFactory.create(queue_name="mail", scheduled=True)
    Job.objects.using("other").bulk_create([JobFactory.build()])
    for code, text in ENDS.items():
        for line in filter(None, map(str.strip, re.split(r"\||\n", text))):
            command, *arguments = line.split()
            assert exit_code(*arguments, command=command) == code, line
            printed = "".join(capfd.readouterr())
            assert "CommandError" not in printed or not {"health", "status"} & {*arguments}, line


def test_the_page_lists_the_exit_codes() -> None:
    table = REFERENCE.read_text().split("\n## ")[1]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [*ENDS, 130, 141]


def test_each_subcommand_has_a_sentence() -> None:
    for subcommand in _parser.found().values():
        assert subcommand.help
        assert not subcommand.help.endswith(".")


@pytest.mark.parametrize(("arguments", "printed"), [
    ("echo", "default 1 1"), ("echo --times 2", "default 2 1"),
    ("--database other -v 0 echo", "other 1 0"), ("echo --database=other -v 0", "other 1 0"),
    ("-v 2 echo --database=other --no-color", "other 1 2"),
])  # fmt: skip
def test_options_come_before_or_after_the_subcommand(echo: Echo, arguments: str, printed: str) -> None:
    assert run(*arguments.split()) == printed


def test_options_are_keywords_of_call_command(echo: Echo) -> None:
    assert run("echo", times=3, database="other") == "other 3 1"
    with pytest.raises(CommandError, match="'nowhere' is not in DATABASES") as raised:
        run("echo", database="nowhere")
    assert raised.value.returncode == 2


@pytest.mark.parametrize(("error", "code"), [
    (ArgumentTypeError("it is not given"), 2), (ImproperlyConfigured("it is wrong"), 1),
    (PgQueueError("it is gone"), 1), (CommandError("it is late", returncode=7), 7),
])  # fmt: skip
def test_errors_of_a_subcommand(echo: Echo, error: Exception, code: int) -> None:
    echo.error = error
    with pytest.raises(CommandError, match=str(error)) as raised:
        run("echo")
    assert raised.value.returncode == code


def test_ctrl_c(echo: Echo, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(echo, "run", lambda options: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            run("echo")
        assert exit_code("echo") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""


NOT_REACHED = Mock(side_effect=OperationalError("refused"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("vendor", "sqlite", r"'default' is sqlite\. Name another one with --database"),
        ("ensure_connection", NOT_REACHED, "'default' cannot be reached: refused"),
    ],
    ids=["another kind", "not reached"],
)
def test_a_database_that_cannot_be_used(
    echo: Echo, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, message: str
) -> None:
    monkeypatch.setattr(connection, name, value, raising=False)
    with pytest.raises(CommandError, match=message) as raised:
        run("echo")
    assert raised.value.returncode == 1


NOT_MIGRATED = (
    r"^The database 'default' is not migrated: it lacks \d+ migrations? of django_pgqueue\. "
    r"Run: python manage\.py migrate --database default$"
)
RENAMED = "ALTER FUNCTION _pgqueue_retain RENAME TO retain_elsewhere"
FORGOTTEN = "DELETE FROM django_migrations WHERE app = 'django_pgqueue' AND name <> '0001_initial'"


@pytest.mark.parametrize(("lost", "said"), [
    (["DROP TABLE pgqueue_job CASCADE", FORGOTTEN], NOT_MIGRATED), ([RENAMED, FORGOTTEN], NOT_MIGRATED),
    ([RENAMED], r"lacks .*: _pgqueue_retain.*\bmigrate --database default"),
], ids=["a migration before tables", "a migration before functions", "functions"])  # fmt: skip
def test_a_database_that_lacks_something(echo: Echo, lost: list[str], said: str) -> None:
    for statement in lost:
        sql(statement)
    with pytest.raises(CommandError, match=said):
        run("echo")


@pytest.mark.parametrize("arguments", [["stats"], ["health", "--json"], ["jobs", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_the_command_quietly(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As with ``| head``: the exit code is that of a program that SIGPIPE has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert exit_code(*arguments) == 141
        out.write("this goes nowhere")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("encoding", "printed"), [("ascii", b"caf\\xe9"), ("utf-8", "café".encode())])
def test_an_output_that_cannot_show_each_character(
    echo: Echo, encoding: str, printed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = BytesIO()
    out = TextIOWrapper(file, encoding=encoding)
    monkeypatch.setattr(echo, "run", lambda options: Output(["café"]))
    call_command("pgqueue", "echo", stdout=out)
    assert file.getvalue().strip() == printed


def test_json_is_ascii_if_the_output_is() -> None:
    file = BytesIO()
    out = OutputWrapper(TextIOWrapper(file, encoding="latin-1", write_through=True))
    print_json(out, {"who": "Zoë €"})
    assert file.getvalue().isascii()
    assert json.loads(file.getvalue()) == {"who": "Zoë €"}


def test_a_table_obeys_nobody() -> None:
    rows = [("1", "a\x1b[2J\nb", "x"), ("20", "日本", "y")]
    lines = [*Table(("ID", "What", "Who"), rows, right={0}).lines()]
    assert lines == ["ID  What         Who", " 1  a\\x1b[2J\\nb  x", "20  日本         y"]


def test_a_narrow_terminal_gets_what_fits() -> None:
    rows = [("mail", "5", "0", "-"), ("slow", "10", "0", "7; 100 a minute")]
    table = Table(("Queue", "Ready", "Running", "Limit"), rows, right=(1, 2))
    wide = [*table.lines(60)]
    assert wide[0] == "Queue  Ready  Running  Limit"
    assert [*table.lines(None)] == wide
    assert [*table.lines(30)] == ["Queue  Ready  Limit", "mail       5  -", "slow      10  7; 100 a minute"]
    narrow = ["Queue  Ready", "mail       5", "slow      10"]
    assert [*table.lines(26)] == [*narrow, "    Limit: 7; 100 a minute"]
    assert [*table.lines(20)] == [*narrow, "    Limit: 7; 100 a", "    minute"]


def test_failing_system_checks_do_not_stop_it() -> None:
    """A project whose checks fail must still be able to pause its work."""
    assert pgqueue.Command().requires_system_checks == ()


def test_no_terminal_obeys_what_a_job_contains() -> None:
    """U+009B is ESC and "[" in one, and JSON permits it in texts. U+202E turns the text around."""
    job = make_rows()["job"][5]
    Worker.objects.update(heartbeat_at=ago(hours=-1))  # none falls silent meanwhile
    commands: list[tuple[str, ...]] = [
        ("status",), ("jobs",), ("jobs", str(job.pk)), ("why", str(job.pk)), ("workers",), ("pauses",),
        ("schedules",),
        ("schedules", "show", HOSTILE), ("stats",), ("tasks",), ("failures",), ("failures", SHORT[:40]),
        ("database",), ("queues",), ("limits",),
    ]  # fmt: skip
    for lines in ([*commands, ("top",)], [(*command, "--json") for command in commands]):
        printed = {line: run(*line) for line in lines}
        texts = {line: text.replace("\n", " ") for line, text in printed.items()}
        assert [line for line, text in texts.items() if not text.isprintable()] == []
        assert sum("\\x9b" in text or "\\u009b" in text for text in printed.values()) > 6


# --- Durations and numbers on the command line


@pytest.mark.parametrize(("text", "length"), [
    ("90", timedelta(seconds=90)), ("0.5", timedelta(seconds=0.5)), ("90s", timedelta(seconds=90)),
    ("30m", timedelta(minutes=30)), ("1.5h", timedelta(minutes=90)), ("1d", timedelta(days=1)),
    ("0", timedelta()),
])  # fmt: skip
def test_a_duration(text: str, length: timedelta) -> None:
    assert duration(text) == since(text) == length
    assert seconds()(text) == seconds()(length) == seconds()(length.total_seconds())


NO_DURATIONS = ("", "-5", "m", "1w", "2 h", "1h30m", "5M", "1e3", "inf", "99999999999", "40000d")


@pytest.mark.parametrize(
    ("read", "given"),
    [
        *((read, text) for read in (duration, seconds()) for text in NO_DURATIONS),
        *((_arguments.processes, text) for text in ("0", "many", "-1")),
    ],
)
def test_what_is_no_duration_and_no_number_of_processes(read: Any, given: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(given)


@pytest.mark.parametrize("value", ["0", 0, True, None, timedelta(days=40_000)])
def test_what_is_too_short_or_too_long_or_something_else(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not a duration from 0\.1 s to 100 years"):
        seconds(0.1)(value)


@pytest.mark.parametrize(("command", "arguments", "name", "value"), [
    ("runqueueworker", "--grace 2m", "grace", 120), ("pgqueue", "health --age 2m", "age", 120),
    ("pgqueue", "top --interval 2m", "interval", 120), ("pgqueue", "stats --span 60m", "span", HOUR),
    ("pgqueue", "pause --everything --for 2m", "duration", 120),
    ("pgqueue", "jobs --since 2m", "since", timedelta(minutes=2)),
    ("pgqueue", "stats --span 1d", "span", DAY), ("pgqueue", "failures --span 7d", "span", WEEK),
])  # fmt: skip
def test_options_that_are_durations(command: str, arguments: str, name: str, value: Any) -> None:
    parser = load_command_class("django_pgqueue", command).create_parser("manage.py", command)
    assert getattr(parser.parse_args(arguments.split()), name) == value


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(None, 3), ("max 100000", 3), ("150000 100000", 2), ("800000 100000", 3), ("20000 100000", 1)],
)
def test_auto_is_a_process_for_each_cpu_that_may_be_used(
    quota: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpu.max"
    if quota is not None:
        path.write_text(f"{quota}\n")
    monkeypatch.setattr(_arguments, "_CPU_QUOTA", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 3})
    assert _arguments.processes("auto") == expected
    assert _arguments.processes(4) == 4


# --- Names of queues that are probably misspelled, and where the known names come from

OURS = "django_pgqueue.backend.PgQueueBackend"


@task(queue_name="invoices")
def declared() -> None:
    """So that its queue is known."""


def test_a_misspelled_queue_is_a_warning_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "django_pgqueue")
    warn_of_unknown_queues("default", "--queues", ["invoices", "invocies", "zzz"])
    first, second = caplog.messages
    assert first == (
        "--queues names 'invocies', a queue that no task, setting or job uses. Did you mean 'invoices'?"
    )
    assert second.startswith("--queues names 'zzz', ")
    assert ". Known queues: " in second
    assert "invoices" in second


def test_queues_that_the_database_knows() -> None:
    JobFactory.create(queue_name="waits")
    for name, state in (("later", "scheduled"), ("runs", "running"), ("long-over", "done")):
        JobFactory.create(queue_name=name, **{state: True})
    QueueFactory.create(name="configured")
    JobStatFactory.create(queue_name="ran")
    assert queues_in_use("default") == {"waits", "later", "runs", "configured", "ran"}


def test_queues_that_the_code_knows(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["from-settings"]},
        "wrong": {"BACKEND": OURS, "QUEUES": "no list"},
    }
    known = declared_queues()
    assert {"invoices", "from-settings"} <= known
    assert known.isdisjoint("no list")
