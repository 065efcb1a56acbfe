"""``manage.py pgqueue top`` and ``metrics``: what goes on until somebody stops it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from unittest.mock import Mock
from urllib.request import urlopen

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import OperationalError, connection, connections
from django.utils import timezone
from prometheus_client import make_wsgi_app

from django_pgqueue.management.subcommands import top
from django_pgqueue.management.subcommands.operating import exporter, serve
from django_pgqueue.management.subcommands.top import PANES, View, look, picture, shares
from django_pgqueue.metrics import registry
from django_pgqueue.models import JobProgress, JobStat, Pause, Queue
from django_pgqueue.monitoring.failures import GroupFigures
from django_pgqueue.monitoring.spans import rates
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.tasks.progress import HAS_PROGRESS
from tests.support.databases import sharded
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory
from tests.support.jobs import sql
from tests.support.waiting import until

from .test_subcommands import run


@pytest.fixture
def minute(db: None) -> datetime:
    """The current minute on the clock of the database, which stands still in a transaction."""
    found: datetime = sql("SELECT date_trunc('minute', now())")
    return found


@pytest.fixture
def busy(minute: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queues, two workers, three jobs that run, and failures."""
    first = WorkerFactory.create(host="app-1", pid=7, slots=4)
    WorkerFactory.create(host="app-2", pid=8, slots=4, queues=["never"])
    Pause.objects.create(kind="queue", name="mail")
    JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(hours=1))
    JobFactory.create(queue_name="default", run_after=timezone.now() - timedelta(minutes=30, seconds=30))
    for age, path in ((150, "shop.tasks.load"), (90, "shop.tasks.日本語\x1b[2J")):
        job = JobFactory.create(
            pk=900 + age, running=True, worker=first.pk, task_path=path, marks=HAS_PROGRESS,
            current_step="rows", last_attempted_at=timezone.now() - timedelta(minutes=age),
        )  # fmt: skip
        JobProgress.objects.create(job_id=job.pk, done=50, total=100, note="halfway")
    JobFactory.create(pk=901, running=True, worker=-1)  # no worker has this id
    # The next minute may begin.
    for age, counts in ((1, {"failed": 3, "done": 117}), (0, {"done": 120}), (90, {"failed": 1})):
        at = minute - timedelta(minutes=age)
        JobStatFactory.create(minute=at, task_path="shop.tasks.pay", **counts)
    now = timezone.now()
    failure = GroupFigures(
        "f" * 40, "shop.errors.CardRefused", "no\tcover", now, now, failed=3, retried=12, total_failed=3,
        total_retried=12, tasks=["shop.tasks.pay"], versions=["v1"], sample_job=5, muted_at=None, muted_by="",
    )  # fmt: skip
    monkeypatch.setattr(top, "groups", lambda *_, **__: [failure])


@pytest.mark.usefixtures("busy")
def test_everything_at_once_on_a_pipe(wording: Any) -> None:
    text = re.sub(r"\b[1-4](\.\d)? jobs/s", "<1-4> jobs/s", run("top"))  # 240 attempts in one to two minutes
    assert re.sub(r" {2,}", "  ", re.sub(r"\b\d+ s\b", "<s>", text)) == wording


def drawn(*args: Any) -> list[str]:
    """Return the lines of a picture."""
    lines = args[-1].render_lines(picture(*args))
    return ["".join(part.text for part in line) for line in lines]


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("size", [(200, 60), (80, 24), (79, 24), (40, 12), (120, 33)])
def test_a_picture_fits_every_screen(size: tuple[int, int]) -> None:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=size[0], height=size[1], file=StringIO(), force_terminal=True)
    found = look(["default"])
    for key in "01234":
        view = View(["default"])
        view.press(key)
        lines = drawn(found, {**found.given}, view, console)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        assert lines[-1].startswith("q quit  p pause")
        assert "\x1b[2J" not in "".join(lines)


def draw(alias: str) -> str:
    """The picture for the docs as SVG: what a terminal shows now."""
    rich, found = pytest.importorskip("rich.console"), look([alias])
    console = rich.Console(
        record=True, width=140, height=44, file=StringIO(), force_terminal=True, color_system="truecolor",
        highlight=False,
    )  # fmt: skip
    console.print(picture(found, found.given, View([alias]), console))
    svg = console.export_svg(title="manage.py pgqueue top", unique_id="top")
    # Rich names a font on a server of its own choice.
    fonts = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"
    return re.sub(r"(?s)@font-face \{.*?\}\s*", "", svg).replace("Fira Code", fonts)


@pytest.mark.usefixtures("busy")
def test_the_picture_for_the_docs_needs_nothing_from_elsewhere() -> None:
    svg = draw("default")
    assert "app-1:7" in svg
    assert re.findall(r"(?:src|href|url)\W+https?://", svg) == []


def test_rows_are_shared_among_the_panes() -> None:
    assert shares({"a": 2, "b": 3}, 100) == {"a": 2, "b": 3}
    assert shares({"a": 1, "b": 50, "c": 50}, 26) == {"a": 1, "b": 8, "c": 9}
    assert shares({"a": 50}, 1) == {"a": 0}


def test_keys() -> None:
    view = View(["default"])
    assert view.press("3")
    assert view.press("s")
    assert (view.pane, view.sorts["running"]) == ("running", "newest")
    assert view.press("0")
    assert [view.press("s") and view.sorts["queues"] for _ in range(4)] == ["ready", "rate", "name", "age"]
    assert view.press("p")
    assert "p go on" in view.help
    assert not any(view.press(key) for key in ("", "x", "9", "²", "d"))


@pytest.mark.usefixtures("busy")
def test_each_order_shows_the_same_rows() -> None:
    found = look(["default"]).given.values()
    for pane in PANES.values():
        rows = [sorted(map(list, pane.table([*found], order, ["default"]).rows)) for order in pane.sorts]
        assert all(each == rows[0] for each in rows)
        assert rows[0]


@pytest.mark.django_db
def test_rates() -> None:
    def within_a_minute() -> float | None:
        JobStat.objects.all().delete()
        now = server_now("default").replace(second=0, microsecond=0)
        for age, failed in ((-1, 8), (0, 1), (1, 2), (2, 4)):  # the clock was set back
            JobStatFactory.create(minute=now - timedelta(minutes=age), done=0, failed=failed)
        found = rates("default")["default"]
        return found if server_now("default") - now < timedelta(minutes=1) else None

    assert 3 / 120 <= until(within_a_minute) <= 3 / 60


@pytest.mark.usefixtures("busy")
def test_a_part_that_is_too_slow_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "rates", Mock(side_effect=TimeLimitReached))
    lines = run("top", "--once").splitlines()
    assert lines[0].endswith("Too slow to show: rates.")
    assert "app-1:7" in "\n".join(lines)


@pytest.mark.usefixtures("busy")
def test_each_statement_has_a_time_limit_and_there_are_few(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(64) as captured:
        look(["default"])
    savepoints = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")
    sent = [query["sql"] for query in captured.captured_queries]
    queries = [query for query in sent if not query.startswith(savepoints)]
    limits = ["statement_timeout" in query for query in queries]
    assert limits[0]
    assert limits.count(False) <= 12
    assert limits.count(True) >= 8


@pytest.mark.django_db(databases=["default", "other"])
def test_shards_share_a_screen_and_one_that_is_down_is_no_zero() -> None:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=150, height=50, file=StringIO(), force_terminal=True)
    JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(hours=1))
    WorkerFactory.create(host="app-1", pid=7, slots=4)
    WorkerFactory.build(host="app-2", pid=8, slots=3).save(using="other")
    for number in range(2):
        JobFactory.build(pk=number + 5, running=True, worker=-1, queue_name="mail").save(using="other")
    with sharded("down"):
        names = ["default", "other", "down"]
        found, view = look(names), View(names)
        text = "\n".join(re.sub(r"  +", " ", line) for line in drawn(found, {}, view, console))
        assert (*found.given,) == ("default", "other")
        for line in (
            "pgqueue top: default, other, down, ", "The database down did not answer: ",
            "default: 1 problem: ", "other: ", "Ready: 1, oldest 1 h", "of 7 slots", "mail default 1 1 h",
            "mail other 0 ", "app-1:7 default running", "app-2:8 other running", " other other:6 ",
            "d shard: all",
        ):  # fmt: skip
            assert line in text
        assert "down" not in text.partition("Ready:")[2]

        view.press("d")
        view.press("d")
        lines = drawn(found, {}, view, console)
        assert lines[0].startswith("pgqueue top: other, ")
        assert "of 3 slots" in "\n".join(lines)
        assert "default" not in "\n".join(lines[:-1])
        view.press("d")
        lines = drawn(found, {}, view, console)
        assert lines[1].startswith("The database down did not answer: ")
        assert "Ready" not in "\n".join(lines)  # nothing is known of it
        assert "app-2:8" in "\n".join(drawn(found, {"down": found.given["other"]}, view, console))  # its last
        view.press("d")
        assert view.shard == ""


@pytest.mark.django_db
def test_a_database_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = OperationalError("server closed the connection\nunexpectedly")
    monkeypatch.setattr(top, "rates", Mock(side_effect=gone))
    monkeypatch.setattr(connection, "close", lambda: None)
    told = "database default did not answer: server closed the connection unexpectedly"
    with pytest.raises(CommandError, match=told):
        run("top")


class Person:
    """Somebody who sits before a terminal: waits for a text, then presses a key."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.seen = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character

    def watches(self, stdout: Any, script: Callable[[], None]) -> None:
        """Run ``pgqueue top`` on the terminal while this person does what the script says."""

        def act() -> None:
            try:
                script()
            except BaseException:
                self.presses("q")
                raise

        with ThreadPoolExecutor(1) as beside:
            acted = beside.submit(act)
            call_command("pgqueue", "top", "--interval", "600", stdout=stdout)
            acted.result(30)

    def sees(self, text: str) -> None:
        """Wait until the terminal shows a text that it has not shown before."""
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], 20)
            assert ready, f"{text!r} does not appear: {self.seen!r}"
            self.seen += self.decoder.decode(os.read(self.master, 65536))
        self.seen = self.seen.partition(text)[2]

    def presses(self, key: str) -> None:
        os.write(self.master, key.encode())

    def resizes(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Person, Any]]:
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with ExitStack() as stack:
        stack.callback(os.close, master)
        stdin = stack.enter_context(os.fdopen(os.dup(slave), "r"))
        stdout = stack.enter_context(os.fdopen(slave, "w"))
        monkeypatch.setattr(sys, "stdin", stdin)
        person = Person(master)
        person.resizes(110, 40)
        yield person, stdout


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["q", "SIGTERM"])
def test_on_a_terminal(terminal: tuple[Person, Any], end: str, settings: Any) -> None:
    """It draws, listens, follows the size of the window, survives an outage, and restores the terminal."""
    pytest.importorskip("rich")
    settings.LANGUAGE_CODE = "de"  # it is in English all the same
    person, stdout = terminal
    WorkerFactory.create(host="app-1", pid=7)
    JobFactory.create(queue_name="mail")
    before = termios.tcgetattr(person.master), signal.getsignal(signal.SIGTERM)
    kill = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> ALL (ARRAY[pg_backend_pid(), %s])
    """
    ours = sql("SELECT pg_backend_pid()")

    def script() -> None:
        person.sees("Healthy: 1 worker")
        person.sees("mail")
        person.presses("\033[A")  # an arrow means nothing
        person.presses("2p")
        person.sees("paused")
        person.sees("app-1:7")
        person.resizes(60, 12)
        person.sees("q quit  p go on")
        sql(kill, ours)
        connection.close()
        person.presses("p")
        person.sees("did not answer")
        person.presses("r")
        person.sees("Healthy: 1 worker")
        if end == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            person.presses("q")

    person.watches(stdout, script)
    assert (termios.tcgetattr(person.master), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_shard_that_hangs_delays_neither_the_others_nor_the_keys(terminal: tuple[Person, Any]) -> None:
    pytest.importorskip("rich")
    person, stdout = terminal
    WorkerFactory.create(host="app-1", pid=7)
    WorkerFactory.build(host="app-2", pid=8).save(using="other")

    def script() -> None:
        person.sees("The database silent did not answer: it took longer than 2 s.")
        person.sees("Healthy: default, other")
        person.sees("app-1:7")
        person.sees("app-2:8")
        person.presses("rdd")
        person.sees("pgqueue top: other")
        person.presses("q")

    with sharded("silent"):
        person.watches(stdout, script)


def test_without_rich(terminal: tuple[Person, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(CommandError, match=r"This needs Rich\. Install it, or the extra `top`\."):
        top.run({"shards": ["default"], "once": False, "stdout": OutputWrapper(terminal[1])})


def test_a_mistake_in_the_thread_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    rich = pytest.importorskip("rich.console")
    monkeypatch.setattr(top, "look", Mock(side_effect=ZeroDivisionError))
    with open(os.devnull) as nothing, open(os.devnull, "w") as out:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nothing)
        monkeypatch.setattr(os, "get_terminal_size", lambda _: (80, 24))
        with pytest.raises(ZeroDivisionError):
            top.watch(["default"], 1, rich.Console(file=out))


# --- metrics


@pytest.mark.django_db(databases=["default", "other"])
def test_metrics() -> None:
    Queue.objects.using("other").create(name="mail")
    assert 'pgqueue_up{database="default"} 1.0' in run("metrics")
    assert 'database="other"' not in run("metrics")
    assert 'database="other",queue="mail"' in run("metrics", "--database", "other")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("when", ["between two scrapes", "within one"])
def test_the_exporter_answers_until_it_is_stopped(when: str) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if when == "within one":
            os.kill(os.getpid(), signal.SIGTERM)
        return metrics(environ, start_response)

    metrics = make_wsgi_app(registry(["default"]))
    server = exporter(app, "127.0.0.1", 0)

    def ask() -> Iterator[str]:
        for _ in range(1 if when == "within one" else 2):
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
                yield response.read().decode()
            connections["default"].close()
        if when != "within one":
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(lambda: [*ask()])
        serve(server)
        assert all('pgqueue_up{database="default"} 1.0' in body for body in asked.result())


@pytest.mark.django_db
def test_without_prometheus_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CommandError, match=r"the extra .metrics."):
        run("metrics")
