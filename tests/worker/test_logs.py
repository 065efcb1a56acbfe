"""The log: what a terminal shows at each verbosity, that the project's own logging wins, and what Sentry
gets.
"""

from __future__ import annotations

import linecache
import logging
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_pgqueue import enqueue, task
from django_pgqueue.formatting import MOST_BYTES
from django_pgqueue.maintenance.recovery import EndedProcess, recover
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import connect
from django_pgqueue.telemetry import sentry
from django_pgqueue.worker import logs
from django_pgqueue.worker.logs import _Formatter, configure_logging, format_error, logging_restored
from tests.app import worker_tasks as tasks
from tests.support.factories import JobFactory, claimed
from tests.support.workers import run_due


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> logging.Manager:
    """Loggers that nobody else, pytest included, has touched: ``configure_logging`` finds them."""
    root = logging.RootLogger(logging.WARNING)
    root.manager = manager = logging.Manager(root)
    monkeypatch.setattr(logs, "logging", SimpleNamespace(**{**vars(logging), "getLogger": manager.getLogger}))
    return manager


def ours(manager: logging.Manager) -> list[logging.Logger]:
    return [manager.getLogger(name) for name in ("django_pgqueue", "django_pgqueue.job")]


@pytest.mark.parametrize(("verbosity", "package", "jobs"), [
    (0, logging.WARNING, logging.ERROR), (1, logging.INFO, logging.WARNING), (2, logging.INFO, logging.INFO),
    (3, logging.DEBUG, logging.DEBUG),
])  # fmt: skip
def test_verbosity(verbosity: int, package: int, jobs: int, manager: logging.Manager) -> None:
    configure_logging(verbosity)
    assert [logger.level for logger in ours(manager)] == [package, jobs]
    assert len(ours(manager)[0].handlers) == 1


def test_a_project_that_has_configured_logging_is_left_alone(manager: logging.Manager) -> None:
    manager.root.addHandler(logging.NullHandler())
    configure_logging(3)
    assert [(logger.handlers, logger.level) for logger in ours(manager)] == 2 * [([], logging.NOTSET)]


def test_what_was_configured_is_taken_back_however_the_command_ends(manager: logging.Manager) -> None:
    loggers = ours(manager)
    loggers[1].setLevel(logging.CRITICAL)
    with suppress(SystemExit), logging_restored():
        configure_logging(2)
        assert [logger.level for logger in loggers] == [logging.INFO, logging.INFO]
        raise SystemExit
    assert [logger.level for logger in loggers] == [logging.NOTSET, logging.CRITICAL]
    assert [logger.handlers for logger in loggers] == [[], []]


@pytest.mark.parametrize("message", ["x" * 10_000_000, "\ud800" * 100_000], ids=["long", "surrogates"])
def test_a_huge_exception_is_cut_in_the_log(message: str) -> None:
    text = _Formatter().formatException((ValueError, ValueError(message), None))
    assert len(text.encode(errors="surrogatepass")) < MOST_BYTES + 100
    assert text.startswith("ValueError: ")
    assert "bytes left out" in text


# -- exceptions


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_texts", {})


def plain() -> None:
    raise ValueError("plain: \n two lines\n\n")


def called_in_an_expression() -> None:
    numbers = {"a": [1, 2]}
    print(numbers["a"][0] + numbers["a"][5])


def over_many_lines() -> None:
    int("not a number", base=10)


def with_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("with cause") from error


def with_context() -> None:
    try:
        with_cause()
    except KeyError:
        plain()


def without_context() -> None:
    try:
        plain()
    except ValueError:
        raise TypeError from None


def with_notes() -> None:
    error = RuntimeError("with notes")
    error.add_note("first\nof two lines")
    error.add_note("second")
    raise error


def group() -> None:
    errors = [raised_by(each) for each in (with_cause, with_notes, called_in_an_expression)]
    try:
        raise ExceptionGroup("inner", errors)
    except ExceptionGroup as inner:
        raise ExceptionGroup("outer", [inner, ValueError("alone")]) from errors[0]


def deep(level: int = 30) -> None:
    if level == 0:
        plain()
    deep(level - 1)


def bad_syntax() -> None:
    compile("a = (1,\n  2", "<typed>", "exec")


def misspelled() -> None:
    print(sys.maxsiz)  # type: ignore[attr-defined]


FUNCTIONS = [
    plain, called_in_an_expression, over_many_lines, with_cause, with_context, without_context, with_notes,
    group, deep, bad_syntax, misspelled,
]  # fmt: skip


def raised_by(function: Callable[[], None]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def shown(error: BaseException) -> str:
    """Return the text of an exception, which is that of the standard library."""
    text = format_error(error, error.__traceback__)
    assert text == "".join(traceback.format_exception(error))
    return text


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_missing_the_first_time_and_later(function: Callable[[], None]) -> None:
    for _ in range(3):
        error = raised_by(function)
        assert "Traceback (most recent call last)" in shown(error)
        given: Any = (type(error), error, error.__traceback__)
        assert _Formatter().formatException(given) == logging.Formatter().formatException(given)


def test_frames_that_are_not_asked_for_are_left_out() -> None:
    error = raised_by(with_cause)
    assert error.__traceback__ is not None
    text = format_error(error, error.__traceback__.tb_next)
    assert "in raised_by" not in text
    assert text.count("in with_cause") == 2  # once in the cause


def test_two_calls_on_one_line_are_two_places() -> None:
    first = True

    def fail() -> None:
        print(int("one") if first else float("two"))

    for first in (True, False):  # noqa: B007 - read by the function
        shown(raised_by(fail))


def test_code_that_was_made_at_run_time_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several such sources may have one name."""
    for source in ("int('one')", "int('two')"):
        monkeypatch.setitem(linecache.cache, "<made>", (len(source), None, [source + "\n"], "<made>"))
        error = raised_by(lambda source=source: exec(compile(source, "<made>", "exec"), {}))  # type: ignore[misc] # noqa: S102
        assert f"    {source}\n" in format_error(error, error.__traceback__)


def test_the_number_of_known_places_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST", 3)
    for function in FUNCTIONS:
        shown(raised_by(function))
        assert 1 <= len(logs._texts) <= 3


# --- Sentry, set up as the documentation shows: an event per final failure, with the tags of its job alone


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "settings" / "sentry.py"


class Collecting(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.flushed: list[float] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)

    def flush(self, timeout: float, callback: Any = None) -> None:
        self.flushed.append(timeout)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    monkeypatch.setenv("SENTRY_DSN", "https://key@sentry.invalid/1")
    runpy.run_path(str(EXAMPLE))
    client: Any = sentry_sdk.get_client()
    assert client.get_integration("django") is not None
    client.transport.kill()
    client.transport = transport = Collecting()
    yield transport
    client.close()
    sentry_sdk.get_global_scope().set_client(None)


@task(max_attempts=1)
def fail_as(customer: str) -> None:
    sentry_sdk.set_tag("customer", customer)
    sentry_sdk.add_breadcrumb(message=f"for {customer}")
    tasks.meet.func("sentry", 2)
    raise ValueError(customer)


@task(max_attempts=1)
async def afail_as(customer: str) -> None:
    sentry_sdk.set_tag("customer", customer)
    sentry_sdk.add_breadcrumb(message=f"for {customer}")
    meeting: Any = tasks.ameet.func("sentry", 2)
    await meeting
    raise ValueError(customer)


@task
def reports() -> None:
    sentry_sdk.capture_message("something is odd")


def tags_of(job: Job) -> dict[str, str]:
    return {"pgqueue.task": job.task_path, "pgqueue.queue": job.queue_name, "pgqueue.job_id": str(job.pk)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("forks_here")
def test_each_final_failure_is_one_event_with_the_tags_of_its_job(sent: Collecting, settings: Any) -> None:
    """A retried attempt is none. What a task reports itself has the tags, too."""
    settings.PGQUEUE = {"UNKNOWN_TASK_TIMEOUT": 0}
    jobs = [
        enqueue(tasks.fail.using(queue_name="mail")),
        JobFactory.create(
            task_path=tasks.raise_odd.module_path, args=["group"], max_attempts=1, crash_count=1
        ),
        JobFactory.create(task_path="tests.app.gone.task"),
        enqueue(reports),
    ]
    run_due()
    assert len(sent.events) == len(jobs)
    by_job = {event["tags"]["pgqueue.job_id"]: event for event in sent.events}
    retried, isolated, unknown, reported = events = [by_job[str(job.pk)] for job in jobs]
    assert [event["tags"] for event in events] == [tags_of(job) for job in jobs]
    assert reported["message"] == "something is odd"
    assert (retried["level"], retried["logger"]) == ("error", "django_pgqueue.job")
    assert (retried["extra"]["attempt"], retried["extra"]["max_attempts"]) == (3, 3)
    (error,) = retried["exception"]["values"]
    frames = [frame["function"] for frame in error["stacktrace"]["frames"]]
    assert (error["type"], frames) == ("ValueError", ["fail"])
    (error,) = isolated["exception"]["values"]
    assert error["type"] == "ExceptionGroup"
    assert error["value"].startswith("many (2 sub-exceptions)\n")
    assert "in raise_odd\n" in error["value"]
    assert unknown["exception"]["values"][-1]["type"] == "UnknownTask"


@pytest.mark.django_db(transaction=True)
def test_a_failure_in_recovery_is_one_event(sent: Collecting) -> None:
    sentry_sdk.set_tag("pgqueue.task", "another")  # what the supervisor has set is not the job's
    failed, crashed = (JobFactory.create(running=True, on_lost=on_lost) for on_lost in ("fail", "rerun"))
    session = connect("default")
    try:
        recover(session, EndedProcess(7, [failed.pk, crashed.pk], None, "its process ended", 0.0, 1.0))
    finally:
        session.close()
    (event,) = sent.events
    assert (event["level"], event["logger"]) == ("error", "django_pgqueue.job")
    assert event["logentry"]["formatted"].endswith(": its process ended. The task must not run twice.")
    assert event["tags"] == tags_of(failed)
    assert event["extra"]["error_class"] == "django_pgqueue.exceptions.WorkerLost"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [fail_as, afail_as], ids=["sync", "async"])
def test_jobs_that_run_at_the_same_time_have_scopes_of_their_own(task: Any, sent: Collecting) -> None:
    sentry_sdk.add_breadcrumb(message="for nobody")  # what the worker does is no job's either
    jobs = {name: enqueue(task, name) for name in ("one", "two")}
    later = enqueue(tasks.raise_odd, "nul")  # on a thread that has run one of the others
    run_due(threads=2)
    events = {event["exception"]["values"][-1]["value"]: event for event in sent.events}
    assert len(sent.events) == 3
    for name, job in jobs.items():
        assert events[name]["tags"] == {**tags_of(job), "customer": name}
        crumbs = [crumb["message"] for crumb in events[name]["breadcrumbs"]["values"]]
        assert [crumb for crumb in crumbs if crumb.startswith("for ")] == [f"for {name}"]
    assert events["a\0b"]["tags"] == tags_of(later)


def test_what_was_collected_is_sent_before_a_process_ends_at_once(sent: Collecting) -> None:
    sentry.flush()
    assert sent.flushed == [sentry.FLUSH_SECONDS]


@pytest.mark.parametrize(
    "sdk", [None, ModuleType("sentry_sdk"), sentry_sdk], ids=["none", "partial", "unused"]
)
def test_without_sentry_nothing_happens(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not there, is being imported by another thread at this moment, or was never set up."""
    if sdk is None:
        monkeypatch.delitem(sys.modules, "sentry_sdk")
    else:
        monkeypatch.setitem(sys.modules, "sentry_sdk", sdk)
    sentry.flush()
    with sentry.job_scope(claimed()) as scope, sentry.job_scope(claimed(), scope) as other:
        assert (scope, other) == (None, None)
