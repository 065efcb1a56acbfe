"""``runqueueworker``: what its options mean, what it prints if it cannot start, and how it ends."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, ManagementUtility, call_command
from django.db import connection

from django_pgqueue import enqueue_many
from django_pgqueue.management.commands import runqueueworker
from django_pgqueue.models import Job, Schedule, Worker
from django_pgqueue.worker.options import Assignment, WorkerOptions
from django_pgqueue.worker.supervisor.supervisor import Supervisor
from tests.app import worker_tasks as tasks
from tests.support.jobs import sql
from tests.support.workers import run_due

database = pytest.mark.django_db(transaction=True)  # the command refuses to run inside a transaction

NIGHT = {"SCHEDULES": {"night": {"task": "tests.app.tasks.noop", "cron": "0 3 * * *"}}}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """The options of supervisors that the command would have run."""
    options: list[WorkerOptions] = []

    class FakeSupervisor:
        failure = "it cannot start"

        def __init__(self, given: WorkerOptions, verbosity: int, notify: Callable[[str], None]) -> None:
            self.options = given

        def run(self, check: Callable[[], None]) -> int:
            check()
            options.append(self.options)
            return 3

        def release(self) -> None:
            pass

    monkeypatch.setattr(runqueueworker, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(runqueueworker, "configure_logging", lambda verbosity: None)
    return options


def run(*arguments: str, **options: Any) -> None:
    """Run the command with a supervisor that fails to start."""
    with pytest.raises(CommandError, match="it cannot start") as raised:
        call_command("runqueueworker", *arguments, **{"skip_checks": True, **options})
    assert raised.value.returncode == 3


def exit_code(*arguments: str) -> Any:
    """Of a program that is nothing but the command."""
    with pytest.raises(SystemExit) as ended:
        ManagementUtility(["manage.py", "runqueueworker", "--skip-checks", *arguments]).execute()
    return ended.value.code


@database
@pytest.mark.parametrize(("arguments", "keywords", "settings_", "expected"), [
    ([], {}, {}, {"alias": "default", "processes": 1, "threads": 4, "grace": 30.0}),
    (["--exclude-queues", "slow"], {}, {"GRACE": 7}, {"grace": 7.0, "exclude_queues": ("slow",)}),
    ([], {"queues": "mail, slow"}, {}, {"queues": ("mail", "slow")}),
    ([], {"queues": ["mail", "slow"]}, {}, {"queues": ("mail", "slow")}),
    ([], {"queues": ("mail", "slow")}, {}, {"queues": ("mail", "slow")}),
    (["--burst"], {}, NIGHT, {"burst": True, "schedules": False}),
    (["--burst", "--schedules"], {}, NIGHT, {"burst": True, "schedules": True}),
    (
        [
            "--queues=mail:6, default,mail:2", "--processes=2", "--threads", "8", "--burst", "--schedules",
            "--async-slots=9", "--max-jobs=100", "--max-memory=512", "--grace=0",
        ],
        {}, NIGHT,
        {
            "queues": ("mail", "default"), "weights": {"mail": 2}, "processes": 2, "threads": 8,
            "async_slots": 9, "burst": True, "max_jobs": 100, "max_memory": 512, "grace": 0.0,
        },
    ),
], ids=str)  # fmt: skip
def test_the_options_and_which_schedules_are_written(
    started: list[WorkerOptions],
    settings: Any,
    arguments: list[str],
    keywords: Any,
    settings_: Any,
    expected: Any,
) -> None:
    """A burst writes the schedules of the settings only if it fires them."""
    settings.PGQUEUE = settings_
    run(*arguments, **keywords)
    assert started == [WorkerOptions(**expected)]
    assert Schedule.objects.filter(name="night").exists() == (settings_ == NIGHT and started[0].schedules)


@pytest.mark.django_db(transaction=True, databases=["other"])
def test_the_database_is_the_named_one_else_the_one_where_jobs_go(
    started: list[WorkerOptions], settings: Any
) -> None:
    run("--database", "other")
    ours = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
    settings.TASKS = {"default": {**ours, "OPTIONS": {"database": "other"}}}
    run()
    assert [options.alias for options in started] == ["other", "other"]
    settings.TASKS = {"default": {**ours, "OPTIONS": {"database": "nowhere"}}}
    with pytest.raises(CommandError, match="'nowhere' is not in DATABASES") as raised:
        call_command("runqueueworker")
    assert raised.value.returncode == 2


@pytest.mark.parametrize(("arguments", "expected"), [
    (["--processes", "4"], {"default": 2, "other": 2}),
    ([], {"default": 1, "other": 1}),
    (["--processes", "4", "--databases", "other:3,default"], {"other": 3, "default": 1}),
], ids=str)  # fmt: skip
def test_the_shards_share_the_processes(
    arguments: list[str], expected: dict[str, int], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[WorkerOptions] = []
    settings.PGQUEUE = {"SHARDS": ["default", "other"]}
    monkeypatch.setattr(runqueueworker.Command, "_supervise", lambda self, shards, show: found.extend(shards))
    call_command("runqueueworker", *arguments, skip_checks=True)
    assert {each.alias: each.processes for each in found} == expected
    assert len(found) == 2
    call_command("runqueueworker", *arguments[:2], database="other", skip_checks=True)
    assert (found[2].alias, found[2].processes) == ("other", int(arguments[1]) if arguments else 1)


def test_the_options_travel_to_the_processes() -> None:
    options = WorkerOptions(
        queues=("a", "b"), weights={"a": 3}, exclude_queues=("c",), max_memory=5, grace=1.5
    )
    assignment = Assignment(options, worker=2**62 - 1, supervisor=5, verbosity=2)
    assert Assignment.from_json(assignment.to_json()) == assignment


#: Options for which one process is not enough.
OF_SEVERAL = (
    "--processes=2 --threads=2 --async-slots=9 --max-jobs=1 --max-memory=9 --grace=1 --queues=a:2 --reload"
).split()


#: On the command line, and as keywords of ``call_command()``, which no parser has read.
BAD: list[Any] = [
    "--queues=a b", "--queues=", "--processes=0", "--threads=many", "--grace=-1", "--database=nowhere",
    "--queues=a --exclude-queues=b", "--reload --burst", "--databases=nowhere", "--databases=default:0",
    "--databases=other --database=default", "--databases=default,other --one-process", "--schedules",
    "--max-rss=5", "--concurrency=5", "-Q a", *(f"--one-process {given}" for given in OF_SEVERAL),
]  # fmt: skip
BAD_KEYWORDS: list[Any] = [
    {"queues": "mail", "exclude_queues": ["slow"]}, {"queues": "a b"}, {"queues": "mail:0"},
    {"queues": ["mail:x"]}, {"exclude_queues": "mail:3"}, {"database": "nowhere"}, {"reload": True},
]  # fmt: skip


def test_bad_options_are_refused(started: list[WorkerOptions], wording: Any) -> None:
    said = []
    for given in (*BAD, *BAD_KEYWORDS):
        keywords = {} if isinstance(given, str) else given
        arguments = re.split(" (?=-)|(?<=-Q) ", given) if isinstance(given, str) else []
        with pytest.raises(CommandError) as raised:
            call_command("runqueueworker", *arguments, **keywords)
        assert raised.value.returncode == 2
        assert keywords or exit_code(*arguments) == 2
        said.append(f"{given}: {raised.value}")
    assert "\n".join(said) == wording
    assert started == []


@contextmanager
def altered(statement: str, undo: str, alias: str = "default") -> Iterator[None]:
    """Change the database for a while."""
    sql(statement, using=alias)
    try:
        yield
    finally:
        sql(undo, using=alias)


@database
def test_settings_that_no_worker_can_work_with_are_refused(
    started: list[WorkerOptions], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str) -> None:
        with pytest.raises(CommandError, match=message) as raised:
            call_command("runqueueworker", skip_checks=True)
        assert raised.value.returncode == 1

    with monkeypatch.context() as patch:
        patch.setattr(connection, "vendor", "sqlite", raising=False)
        refused(r"'default' is sqlite\. Name another one with --database")
    with monkeypatch.context() as patch:
        patch.setattr(runqueueworker, "settings_module", lambda: None)
        refused(r'cannot repeat settings\.configure\(\)\. .* PGQUEUE: SETUP="shop\.setup\.django"')
    settings.PGQUEUE = {"GRACE": "long"}
    refused(r"PGQUEUE\['GRACE'\] is 'long'")
    assert started == []


RENAME = "ALTER FUNCTION {} RENAME TO {}".format
NOT_MIGRATED = RENAME("_pgqueue_retain", "elsewhere"), RENAME("elsewhere", "_pgqueue_retain")
SHARD_7 = ("INSERT INTO pgqueue_shard (name, number) VALUES ('s7', 7)", "DELETE FROM pgqueue_shard")
SEARCH_PATH = ("ALTER DATABASE {} SET search_path TO nowhere", "ALTER DATABASE {} RESET search_path")


@database
@pytest.mark.parametrize(("statements", "message"), [
    pytest.param(
        NOT_MIGRATED, r"lacks .*: _pgqueue_retain.*\bmigrate --database default", id="not migrated"
    ),
    # An id of one of its jobs would name a job of the other shard.
    pytest.param(SHARD_7, r"'default' .* is the shard 's7'", id="the name of another shard"),
    # The connections of django-tenants have one.
    pytest.param(
        SEARCH_PATH, "its connections have another search path", id="a search path that only Django has"
    ),
])  # fmt: skip
def test_a_database_that_no_worker_can_work_with_is_refused(
    statements: tuple[str, str], message: str, settings: Any
) -> None:
    settings.PGQUEUE = {"SHARDS": ["default"]}
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    change, undo = (statement.format(name) for statement in statements)
    with altered(change, undo):
        for option in ("--one-process", "--processes=1"):
            with pytest.raises(CommandError, match=message) as raised:
                call_command("runqueueworker", option, skip_checks=True)
            assert raised.value.returncode == 1
    assert not Worker.objects.exists()


@database
def test_what_may_be_meant_is_a_warning(
    started: list[WorkerOptions], caplog: pytest.LogCaptureFixture
) -> None:
    with altered(
        "CREATE FUNCTION _pgqueue_new() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP FUNCTION _pgqueue_new",
    ):
        run("--exclude-queues", "defualt")
    assert len(started) == 1
    assert "_pgqueue_new" in caplog.text  # a function of another version
    assert "--exclude-queues names 'defualt'" in caplog.text
    assert "Did you mean 'default'?" in caplog.text


@database
@pytest.mark.parametrize(("verbosity", "listed"), [(0, None), (1, False), (2, True)])
def test_the_banner_is_printed_once_the_checks_have_passed(
    verbosity: int, listed: bool | None, started: list[WorkerOptions]
) -> None:
    out = StringIO()
    run(verbosity=verbosity, stdout=out, skip_checks=False)
    assert len(started) == 1
    if listed is None:
        assert out.getvalue() == ""
        return
    assert f"  Database:  {connection.settings_dict['NAME']} on " in out.getvalue()
    assert (tasks.noop.module_path in out.getvalue()) is listed


def test_the_system_checks_run_before_the_worker() -> None:
    assert runqueueworker.Command(stdout=StringIO()).requires_system_checks == "__all__"


@database
def test_a_program_that_goes_on_after_the_command_has_its_logging_back(
    started: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, handler = logging.getLogger("django_pgqueue"), logging.NullHandler()
    monkeypatch.setattr(runqueueworker, "configure_logging", lambda verbosity: logger.addHandler(handler))
    run()
    assert started
    assert handler not in logger.handlers


class StoppedSupervisor(Supervisor):
    """Gets a signal as soon as it runs."""

    number = signal.SIGINT

    def run(self, check: Callable[[], None]) -> int:
        """Until the signal."""
        self.signals.catch(self.number)
        signal.raise_signal(self.number)
        return 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_burst_that_a_signal_has_cut_short_says_so(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    monkeypatch.setattr(runqueueworker, "Supervisor", StoppedSupervisor)
    monkeypatch.setattr(StoppedSupervisor, "number", number)
    handlers = {each: signal.getsignal(each) for each in (number, signal.SIGHUP)}
    with pytest.raises((KeyboardInterrupt, CommandError)) as raised:
        call_command("runqueueworker", burst=True)
    if number == signal.SIGINT:
        assert raised.type is KeyboardInterrupt
    else:
        assert "SIGTERM stopped the command before all" in str(raised.value)
        assert getattr(raised.value, "returncode", None) == code
    # Without --burst a stop is the only way to end, and no surprise.
    call_command("runqueueworker")
    assert {each: signal.getsignal(each) for each in handlers} == handlers
    try:
        assert exit_code("--burst") == code
    finally:  # such a program keeps its handlers
        for each, handler in handlers.items():
            signal.signal(each, handler)


@pytest.mark.parametrize(
    ("level", "verbosity", "shown"),
    [(logging.INFO, 1, "in the log"), (logging.WARNING, 1, "on the output"), (logging.WARNING, 0, "")],
)
def test_what_the_log_would_hide_is_printed(
    level: int,
    verbosity: int,
    shown: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The answer to Ctrl-C must not depend on LOGGING, nor be given twice."""
    caplog.set_level(level, "django_pgqueue")
    command = runqueueworker.Command()
    command._verbosity = verbosity
    command._notify("Stopping.")
    assert ("Stopping." in caplog.text) is (shown == "in the log")
    assert (capsys.readouterr().out == "Stopping.\n") is (shown == "on the output")


def test_a_standard_output_that_nobody_reads_does_not_matter() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", closefd=False) as broken:
        runqueueworker.Command(stdout=broken)._print("to nobody")
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # for what is left in its buffer


def test_a_supervisor_has_nothing_in_memory_that_runs_jobs() -> None:
    """``tests/project/test_layers.py`` says which component of the worker may import which."""
    program = (
        "import django, sys; django.setup()\n"
        "import django_pgqueue.management.commands.runqueueworker\n"
        "print(*[name for name in sys.modules if name.startswith('django_pgqueue.worker.')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    components = {name.split(".")[2] for name in ended.stdout.split()}
    assert "supervisor" in components
    assert components.isdisjoint({"executor", "producer", "isolated", "process"})


# -- replacement


@database
@pytest.mark.parametrize(("options", "counts"), [({"max_jobs": 7}, {7}), ({"max_memory": 1}, range(1, 21))])
def test_a_worker_replaces_itself_after_its_jobs_or_if_it_is_too_large(options: Any, counts: Any) -> None:
    enqueue_many(tasks.noop.bind() for _ in range(20))
    lifetime = run_due(**options).lifetime
    assert lifetime.replaced
    assert lifetime.executed == Job.objects.filter(status="done").count()
    assert lifetime.executed in counts
    assert not Job.objects.filter(status="running").exists()
