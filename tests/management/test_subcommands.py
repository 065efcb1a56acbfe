"""``manage.py pgqueue``: how it finds its subcommands, reads their options, and ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import ArgumentTypeError
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, ManagementUtility, call_command
from django.core.management.base import OutputWrapper
from django.db import OperationalError, connection

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import _parser
from django_pgqueue.management._output import Output, Table, print_json
from django_pgqueue.management._parser import argument
from django_pgqueue.management.commands import pgqueue
from django_pgqueue.models import Job, Limit, Pause
from tests.support.factories import ERROR, JobFactory, JobStatFactory, ScheduleFactory, WorkerFactory
from tests.support.failures import fold, note

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"

pytestmark = pytest.mark.django_db(databases=["default", "other"])


class Echo(SimpleNamespace):
    """A subcommand that prints its options, or raises an error."""

    help = "Print the options"
    error: Exception | None = None
    has_json = False

    arguments = (argument("--times", type=int, default=1),)

    def run(self, options: dict[str, Any]) -> Output:
        if self.error is not None:
            raise self.error
        return Output([" ".join(str(options[name]) for name in ("database", "times", "verbosity"))])


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    subcommand = Echo()
    monkeypatch.setattr(pgqueue, "found", lambda: {"echo": subcommand})
    return subcommand


def run(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command("pgqueue", *arguments, stdout=out, **options)
    return out.getvalue().strip()


def exit_code(*arguments: str) -> Any:
    """Of a program that is nothing but the command."""
    with pytest.raises(SystemExit) as ended:
        ManagementUtility(["manage.py", "pgqueue", *arguments]).execute()
    return ended.value.code


def test_each_subcommand_has_a_sentence() -> None:
    for subcommand in _parser.found().values():
        assert subcommand.help
        assert not subcommand.help.endswith(".")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["echo"], "default 1 1"),
        (["echo", "--times", "2"], "default 2 1"),
        (["--database", "other", "-v", "0", "echo"], "other 1 0"),
        (["echo", "--database=other", "-v", "0"], "other 1 0"),
        (["-v", "2", "echo", "--database=other", "--no-color"], "other 1 2"),
    ],
)
def test_options_come_before_or_after_the_subcommand(echo: Echo, arguments: list[str], printed: str) -> None:
    assert run(*arguments) == printed


def test_options_are_keywords_of_call_command(echo: Echo) -> None:
    assert run("echo", times=3, database="other") == "other 3 1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ecko"], "invalid choice: 'ecko'"),
        (["echo", "--times", "many"], "invalid int value: 'many'"),
        (
            ["echo", "--database", "nowhere"],
            r"'nowhere' is not in DATABASES\. The aliases are default, other\.",
        ),
    ],
)
def test_wrong_arguments(echo: Echo, arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as raised:
        run(*arguments)
    assert raised.value.returncode == exit_code(*arguments) == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("run 5", "'run-here'"), ("drain app-1:7", "'drain-worker'"), ("schedules run nightly", "'enqueue'"),
        ("purge --queue mail", "'cancel'"), ("jbos", "'jobs'"), ("schedules trigger nightly", "'enqueue'"),
        ("pause --everything --by ann", "'--author'"), ("pause --everything --raeson=x", "'--reason'"),
        ("stats --by tsak", "'task'"), ("jobs 5 --jsn", "'--json'"), ("workers --backend x", "'--database'"),
        ("--jsn", "'--json'"),
    ],
)  # fmt: skip
def test_an_old_or_foreign_or_misspelled_word_names_the_near_one(arguments: str, hint: str) -> None:
    with pytest.raises(CommandError, match=f"Did you mean {hint}\\?"):
        run(*arguments.split())


def test_a_word_that_is_near_to_none() -> None:
    with pytest.raises(CommandError, match=r"'zzz'\. Choose from .*cancel, .*, workers\."):
        run("zzz")
    with pytest.raises(CommandError, match=r"unrecognized arguments: --zzz 5\.$"):
        run("workers", "--zzz", "5")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArgumentTypeError("it is not given"), 2),
        (ImproperlyConfigured("it is wrong"), 1),
        (PgQueueError("it is gone"), 1),
        (CommandError("it is late", returncode=7), 7),
    ],
)
def test_errors_of_a_subcommand(echo: Echo, error: Exception, code: int) -> None:
    echo.error = error
    with pytest.raises(CommandError, match=str(error)) as raised:
        run("echo")
    assert raised.value.returncode == code


def test_ctrl_c(echo: Echo, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def run_until_ctrl_c(options: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(echo, "run", run_until_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            run("echo")
        assert exit_code("echo") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""


def test_an_alias_given_as_a_keyword_is_checked(echo: Echo) -> None:
    with pytest.raises(CommandError, match="'nowhere' is not in DATABASES") as raised:
        run("echo", database="nowhere")
    assert raised.value.returncode == 2


def test_a_database_that_is_not_postgresql(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite", raising=False)
    with pytest.raises(CommandError, match=r"'default' is sqlite\. Name another one with --database"):
        run("echo")


def test_a_database_that_cannot_be_reached(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connection, "ensure_connection", refuse)
    with pytest.raises(CommandError, match="'default' cannot be reached: connection refused") as raised:
        run("echo")
    assert raised.value.returncode == 1


def test_a_database_that_lacks_functions(echo: Echo) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION _pgqueue_retain RENAME TO retain_elsewhere")
    with pytest.raises(CommandError, match=r"lacks .*: _pgqueue_retain.*\bmigrate --database default"):
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


def test_failing_system_checks_do_not_stop_it() -> None:
    """A project whose checks fail must still be able to pause its work."""
    assert pgqueue.Command().requires_system_checks == ()


def with_json() -> list[str]:
    """The subcommands that print facts, or what they have done."""
    return [name for name, each in _parser.found().items() if each.has_json or name == "schedules"]


def test_the_others_have_no_facts() -> None:
    assert sorted({*_parser.found()} - {*with_json()}) == [
        "metrics",
        "roles",
        "run-here",
        "top",
    ]


@pytest.mark.parametrize("name", with_json())
def test_json_is_one_document_and_nothing_else(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "stack", lambda job, timeout: "a line\n")
    worker = WorkerFactory.create(host="app-1", pid=7)
    job = JobFactory.create(queue_name="mail")
    JobFactory.create(failed=True)
    Pause.objects.create(kind="queue", name="mail")
    more = {
        "why": [str(job.pk)], "drain-worker": [str(worker.pk)], "cancel": [str(job.pk)],
        "pause": ["--queue", "mail"], "resume": ["--queue", "mail"],
        "retry": ["--status", "failed", "--yes"], "run-now": ["--queue", "mail"],
        "health": ["--age", "600"], "stack": [str(job.pk)],
    }.get(name, [])  # fmt: skip
    document = json.loads(run(name, *more, "--json"))
    assert capfd.readouterr().out == ""
    rows = document if isinstance(document, list) else [document]
    section = next(part for part in REFERENCE.read_text().split("\n### ") if f"`pgqueue {name}`" in part[:80])
    assert [key for row in rows for key in row if f"`{key}`" not in section] == []


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_no_terminal_obeys_what_a_job_contains(json_too: tuple[str, ...]) -> None:
    """U+009B is ESC and "[" in one, and JSON permits it in texts. U+202E turns the text around."""
    bad = "a\x1b[2J\x9b2J\x07\x7f\u202e\r\nb"
    error = {**ERROR, "message": bad, "class": bad, "traceback": bad}
    worker = WorkerFactory.create(host=bad, version=bad)
    line = {"at": bad, "level": bad, "logger": bad, "message": bad}
    JobFactory.create(running=True, worker=worker.pk, task_path=bad, queue_name=bad, current_step=bad)
    job = JobFactory.create(
        failed=True, task_path=bad, queue_name=bad, args=[bad], kwargs={bad: bad}, unique_key=bad,
        errors=[error], logs=[{"attempt": 1, "lines": [line]}],
        steps=[{"name": bad, "kind": bad, "attempt": 1, "seconds": 1, "result": bad}],
    )  # fmt: skip
    Pause.objects.create(kind="task", name=bad, reason=bad, author=bad)
    Limit.objects.create(name=bad, concurrency=1, declared_by=bad)
    ScheduleFactory.create(name=bad, task_path=bad, args=[bad], pause_reason=bad)
    JobStatFactory.create(task_path=bad, queue_name=bad)
    note(
        connection.connection, "f00", task_path=bad, message=bad, error_class=bad, traceback=bad, version=bad
    )
    fold(connection.connection)
    commands: list[tuple[str, ...]] = [
        ("status",),  # first: on a slow machine, the worker would be silent after all the others
        ("jobs",), ("jobs", str(job.pk)), ("why", str(job.pk)), ("workers",), ("pauses",), ("schedules",),
        ("schedules", "show", bad), ("stats",), ("tasks",), ("failures",), ("failures", "f00"), ("database",),
        ("queues",), ("limits",),
    ]  # fmt: skip
    printed = {command: run(*command, *json_too) for command in commands + [("top",)] * (not json_too)}
    obeyed = {
        command: {char for char in text if not char.isprintable()} - {"\n"}
        for command, text in printed.items()
    }
    assert {command: found for command, found in obeyed.items() if found} == {}
    assert sum("\\x9b" in text or "\\u009b" in text for text in printed.values()) > 6
