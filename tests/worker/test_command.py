"""``runqueueworker``: what its options mean, and what it prints if it cannot start."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, ManagementUtility, call_command
from django.db import connection

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.management.commands import runqueueworker
from django_pgqueue.models import Job, Schedule
from django_pgqueue.worker.options import Assignment, WorkerOptions
from django_pgqueue.worker.supervisor.supervisor import Supervisor
from tests.app import worker_tasks as tasks
from tests.support.workers import run_due

OURS = "django_pgqueue.backend.PgQueueBackend"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """The options of supervisors that the command would have run."""
    options: list[WorkerOptions] = []

    class FakeSupervisor:
        failure = "it cannot start"
        interrupted_by = None

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


def run(*arguments: str) -> None:
    call_command("runqueueworker", *arguments, skip_checks=True)


def exit_code(*arguments: str) -> Any:
    """Of a program that is nothing but the command."""
    with pytest.raises(SystemExit) as ended:
        ManagementUtility(["manage.py", "runqueueworker", "--skip-checks", *arguments]).execute()
    return ended.value.code


@pytest.mark.django_db(transaction=True)
def test_the_defaults_and_the_exit_code(started: list[WorkerOptions]) -> None:
    with pytest.raises(CommandError, match="it cannot start") as raised:
        run()
    assert raised.value.returncode == 3
    assert exit_code() == 3
    assert started == 2 * [WorkerOptions(alias="default", processes=1, threads=4, grace=30.0)]


def test_an_old_or_foreign_option_names_the_near_one() -> None:
    for option, hint in (("--max-rss", "--max-memory"), ("--concurrency", "--threads"), ("-Q", "--queues")):
        with pytest.raises(CommandError, match=f"Did you mean '{hint}'") as raised:
            run(option, "5")
        assert raised.value.returncode == 2
    assert exit_code("--max-rss", "5") == 2


@pytest.mark.django_db(transaction=True, databases=["other"])
def test_every_option(started: list[WorkerOptions]) -> None:
    with pytest.raises(CommandError, match="it cannot start"):
        run(
            "--queues=mail:6, default,mail:2", "--processes=2", "--threads", "8", "--burst", "--schedules",
            "--async-slots=9", "--database", "other", "--max-jobs=100", "--max-memory=512", "--grace=0",
        )  # fmt: skip
    assert started == [
        WorkerOptions(
            alias="other", queues=("mail", "default"), weights={"mail": 2}, processes=2, threads=8,
            async_slots=9, burst=True, max_jobs=100, max_memory=512, grace=0.0,
        )
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_program_that_goes_on_after_the_command_has_its_logging_back(
    started: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, handler = logging.getLogger("django_pgqueue"), logging.NullHandler()
    monkeypatch.setattr(runqueueworker, "configure_logging", lambda verbosity: logger.addHandler(handler))
    with pytest.raises(CommandError, match="it cannot start"):
        run()
    assert started
    assert handler not in logger.handlers


@pytest.mark.django_db(transaction=True)
def test_grace_and_excluded_queues(started: list[WorkerOptions], settings: Any) -> None:
    settings.PGQUEUE = {"GRACE": 7}
    with pytest.raises(CommandError, match="it cannot start"):
        run("--exclude-queues", "slow")
    assert (started[0].grace, started[0].exclude_queues) == (7.0, ("slow",))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("arguments", "count"), [((), 1), (("--burst",), 0), (("--burst", "--schedules"), 1)], ids=str
)
def test_a_burst_writes_schedules_only_if_it_fires_them(
    started: list[WorkerOptions], settings: Any, arguments: tuple[str, ...], count: int
) -> None:
    settings.PGQUEUE = {"SCHEDULES": {"night": {"task": "tests.app.tasks.noop", "cron": "0 3 * * *"}}}
    with pytest.raises(CommandError, match="it cannot start"):
        run(*arguments)
    assert started[0].schedules is bool(count)
    assert Schedule.objects.filter(name="night").count() == count


@pytest.mark.django_db(transaction=True, databases=["other"])
def test_without_a_database_it_takes_the_one_where_jobs_go(
    started: list[WorkerOptions], settings: Any
) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": {"database": "other"}}}
    with pytest.raises(CommandError, match="it cannot start"):
        run()
    assert started[0].alias == "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queues", "a b"], "queue"),
        (["--queues", ""], "queue"),
        (["--processes", "0"], "0 is less than 1"),
        (["--threads", "many"], "'many' is not a whole number"),
        (["--grace", "-1"], "'-1' is not a duration"),
        (["--database", "nowhere"], r"'nowhere' is not in DATABASES\. The aliases are default, other\."),
        (["--queues", "a", "--exclude-queues", "b"], "cannot be used together"),
        (["--reload", "--burst"], "cannot be used together"),
        (["--schedules"], r"--schedules is for a burst\."),
    ],
)
def test_bad_options_are_refused(arguments: list[str], message: str, started: list[WorkerOptions]) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)
    assert exit_code(*arguments) == 2
    assert started == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": "mail", "exclude_queues": ["slow"]}, "cannot be used together"),
        ({"queues": "a b"}, "queue"),
        (
            {"queues": "mail:0"},
            "weight of mail must be a whole number from 1 to 1000; to let",
        ),
        ({"queues": ["mail:x"]}, "the weight of mail must be a whole number from 1 to 1000. It is 'x'"),
        ({"exclude_queues": "mail:3"}, "queue_name must be"),
        ({"database": "nowhere"}, r"'nowhere' is not in DATABASES\. The aliases are default, other\."),
        ({"reload": True}, r"not with call_command\(\)"),
    ],
)
def test_bad_keywords_are_refused(
    options: dict[str, Any], message: str, started: list[WorkerOptions]
) -> None:
    """``call_command`` hands keywords on as they are: no parser has read them."""
    with pytest.raises(CommandError, match=message) as raised:
        call_command("runqueueworker", **options)
    assert raised.value.returncode == 2
    assert started == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("verbosity", "listed"), [(0, None), (1, False), (2, True)])
def test_the_banner_is_printed_once_the_checks_have_passed(
    verbosity: int, listed: bool | None, started: list[WorkerOptions]
) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="it cannot start"):
        call_command("runqueueworker", verbosity=verbosity, stdout=out)
    assert len(started) == 1
    if listed is None:
        assert out.getvalue() == ""
        return
    assert f"  Database:  {connection.settings_dict['NAME']} on " in out.getvalue()
    assert (tasks.noop.module_path in out.getvalue()) is listed


@pytest.mark.django_db(transaction=True)
def test_a_misspelled_queue_does_not_keep_it_from_starting(
    started: list[WorkerOptions], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CommandError, match="it cannot start"):
        run("--exclude-queues", "defualt")
    assert len(started) == 1
    assert "--exclude-queues names 'defualt'" in caplog.text
    assert "Did you mean 'default'?" in caplog.text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("queues", ["mail, slow", ["mail", "slow"], ("mail", "slow")])
def test_queues_as_a_keyword(queues: Any, started: list[WorkerOptions]) -> None:
    with pytest.raises(CommandError, match="it cannot start"):
        call_command("runqueueworker", queues=queues)
    assert started[0].queues == ("mail", "slow")


def test_a_router_that_names_no_database_is_refused(started: list[WorkerOptions], settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": {"database": "nowhere"}}}
    with pytest.raises(CommandError, match="'nowhere' is not in DATABASES") as raised:
        run()
    assert raised.value.returncode == 2


def test_settings_that_cannot_be_end_the_command_without_a_traceback(
    started: list[WorkerOptions], settings: Any
) -> None:
    settings.PGQUEUE = {"GRACE": "long"}
    with pytest.raises(CommandError, match=r"PGQUEUE\['GRACE'\] is 'long'") as raised:
        run()
    assert raised.value.returncode == 1


class StoppedSupervisor(Supervisor):
    """Gets a signal as soon as it runs."""

    number = signal.SIGINT

    def run(self, check: Callable[[], None]) -> int:
        """Until the signal."""
        self._signals.catch(self.number)
        signal.raise_signal(self.number)
        return 0


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> type[StoppedSupervisor]:
    """The command's supervisor, which is stopped by its ``number``."""
    monkeypatch.setattr(runqueueworker, "Supervisor", StoppedSupervisor)
    return StoppedSupervisor


def test_a_program_hears_of_the_ctrl_c_that_ended_its_burst(stopped: type[StoppedSupervisor]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        call_command("runqueueworker", burst=True)
    assert signal.getsignal(signal.SIGINT) is before
    # Without --burst a stop is the only way to end, and no surprise.
    call_command("runqueueworker")


def test_a_program_hears_of_another_signal_that_ended_its_burst(
    stopped: type[StoppedSupervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped, "number", signal.SIGTERM)
    with pytest.raises(CommandError, match="SIGTERM stopped the command before all") as raised:
        call_command("runqueueworker", burst=True)
    assert raised.value.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_says_that_a_signal_has_cut_a_burst_short(
    stopped: type[StoppedSupervisor], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    monkeypatch.setattr(stopped, "number", number)
    handlers = [signal.getsignal(each) for each in (number, signal.SIGHUP)]
    try:
        assert exit_code("--burst") == code
        # Without --burst a stop is the only way to end.
        call_command("runqueueworker")
    finally:  # such a program keeps its handlers
        for each, handler in zip((number, signal.SIGHUP), handlers, strict=True):
            signal.signal(each, handler)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("level", "in_the_log"), [(logging.INFO, True), (logging.WARNING, False)])
def test_what_the_log_would_hide_is_printed(
    level: int, in_the_log: bool, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer to Ctrl-C must not depend on LOGGING, nor be given twice."""
    caplog.set_level(level, "django_pgqueue")
    runqueueworker.Command()._notify("Stopping.")
    assert ("Stopping." in caplog.text) is in_the_log
    assert (capsys.readouterr().out == "Stopping.\n") is not in_the_log


def test_a_quiet_command_prints_no_message(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING, "django_pgqueue")
    command = runqueueworker.Command()
    command._verbosity = 0
    command._notify("Stopping.")
    assert capsys.readouterr().out == ""


def test_a_standard_output_that_nobody_reads_does_not_matter() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", closefd=False) as broken:
        runqueueworker.Command(stdout=broken)._print("to nobody")
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # for what is left in its buffer


def test_a_database_that_is_not_postgresql(
    started: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "vendor", "sqlite", raising=False)
    with pytest.raises(CommandError, match=r"'default' is sqlite\. Name another one with --database"):
        run()
    assert started == []


@pytest.mark.django_db(transaction=True)
def test_missing_functions(started: list[WorkerOptions]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION _pgqueue_retain RENAME TO retain_elsewhere")
    try:
        with pytest.raises(CommandError, match=r"lacks .*: _pgqueue_retain.*\bmigrate --database default"):
            run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER FUNCTION retain_elsewhere RENAME TO _pgqueue_retain")
    assert started == []


@pytest.mark.django_db(transaction=True)
def test_functions_of_another_version_are_a_warning(
    started: list[WorkerOptions], caplog: pytest.LogCaptureFixture
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION _pgqueue_new() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    try:
        with pytest.raises(CommandError, match="it cannot start"):
            run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION _pgqueue_new")
    assert len(started) == 1
    assert "_pgqueue_new" in caplog.text


def test_the_system_checks_run_before_the_worker() -> None:
    assert runqueueworker.Command(stdout=StringIO()).requires_system_checks == "__all__"


def test_the_options_travel_to_the_processes() -> None:
    options = WorkerOptions(
        queues=("a", "b"), weights={"a": 3}, exclude_queues=("c",), max_memory=5, grace=1.5
    )
    assignment = Assignment(options, worker=2**62 - 1, supervisor=5, verbosity=2)
    assert Assignment.from_json(assignment.to_json()) == assignment


@pytest.mark.django_db(transaction=True)
def test_a_worker_replaces_itself_after_its_number_of_jobs() -> None:
    enqueue_many(tasks.noop.bind() for _ in range(20))
    producer = run_due(max_jobs=7)
    assert producer.lifetime.replaced
    assert producer.lifetime.executed == Job.objects.filter(status="done").count() == 7
    assert not Job.objects.filter(status="running").exists()


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_too_large_does_at_least_one_job() -> None:
    enqueue(tasks.noop)
    producer = run_due(max_memory=1)
    assert producer.lifetime.executed == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("option", ["--one-process", "--processes=1"])
def test_a_search_path_that_only_the_connections_of_django_have(option: str) -> None:
    """As those of django-tenants have it."""
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET search_path TO nowhere")
        try:
            with pytest.raises(CommandError, match="its connections have another search path"):
                run(option)
        finally:
            cursor.execute(f"ALTER DATABASE {name} RESET search_path")
