"""Pauses: stored, ended and refused alike by Python, SQL, the command and the page. Workers are drained."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DataError, IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from django_pgqueue import drain_worker, pause, resume
from django_pgqueue.models import Pause, Worker
from tests.admin.helpers import url
from tests.app.tasks import noop
from tests.support.factories import WorkerFactory
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.wording import refusals

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SYNC = "shop.tasks.sync"
TARGETS = [
    ("queue", "mail"), ("task", SYNC), ("all", ""), ("group", "acme"), ("limit_key", "crm/acme"),
    ("argument", f"{SYNC} kwargs.tenant=acme & co"),
]  # fmt: skip
REFUSALS = TypeError, ValueError, DataError, CommandError


def targets() -> list[tuple[str, str]]:
    return list(Pause.objects.order_by("pk").values_list("kind", "name"))


def target(kind: str, name: Any) -> dict[str, Any]:
    return {"everything": True} if kind == "all" else {kind: name}


# -- the levels


def by_python(client: Client, kind: str, name: Any, **options: Any) -> None:
    pause(**target(kind, name), **options)


def ask(function: str, kind: str | None, name: str, **options: Any) -> Any:
    places = "".join(f", {option} => %s" for option in options)
    with transaction.atomic():
        return sql(f"SELECT pgqueue_{function}(%s, %s{places})", kind, name, *options.values())


def by_sql(client: Client, kind: str | None, name: str, **options: Any) -> None:
    assert ask("pause", kind, name, **options) == Pause.objects.latest("paused_at").pk


def by_command(client: Client, kind: str, name: str, author: str = "", **options: Any) -> None:
    words: dict[str, Callable[[Any], list[str]]] = {
        "until": lambda value: ["--until", value.isoformat()],
        "duration": lambda value: ["--for", f"{value.total_seconds():.0f}s"],
        "reason": lambda value: ["--reason", value],
    }
    more = [word for option, value in options.items() for word in words[option](value)]
    given = ["--everything"] if kind == "all" else [f"--{kind}".replace("_", "-"), name]
    call_command("pgqueue", "pause", *given, "--author", author, "--quiet", *more)


def by_page(client: Client, kind: str, name: str, *, until: Any = None, **options: Any) -> None:
    day, time = f"{timezone.localtime(until):%Y-%m-%d %H:%M:%S.%f}".split() if until else ("", "")
    given = {"kind": kind, "name": name, "until_0": day, "until_1": time, **options}
    answer = client.post(url("add", model="pause"), given)
    if answer.status_code != 302:
        raise ValueError(answer.context["adminform"].form.errors.as_text())


Level = Callable[..., None]
LEVELS: dict[str, Level] = {"python": by_python, "sql": by_sql, "command": by_command, "page": by_page}


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_each_target_has_its_own_pause(admin_client: Client, level: Level) -> None:
    end = timezone.now() + HOUR
    author = "admin" if level is by_page else "ann"
    for kind, name in TARGETS:
        level(admin_client, kind, name, reason="down", author="ann", until=end)
        found = Pause.objects.latest("pk")
        assert (found.reason, found.author, found.until) == ("down", author, end)
    assert targets() == TARGETS


@pytest.mark.parametrize("level", [by_python, by_sql, by_command])
def test_a_second_pause_replaces_the_first(admin_client: Client, level: Level) -> None:
    level(admin_client, "queue", "mail", reason="down", author="ann", duration=HOUR)
    first = Pause.objects.get()
    assert first.until == first.paused_at + HOUR, "by the clock of the database"
    level(admin_client, "queue", "mail", reason="slow", author="bob")
    second = Pause.objects.get()
    assert (second.pk, second.reason, second.author, second.until) == (first.pk, "slow", "bob", None)
    assert second.paused_at > first.paused_at


def resumed(kind: str, name: str) -> bool:
    return resume(**target(kind, name))


@pytest.mark.parametrize("ends", [resumed, partial(ask, "resume")], ids=["python", "sql"])
def test_each_pause_is_resumed_alone_and_one_that_has_ended_is_none(ends: Callable[..., bool]) -> None:
    for one in TARGETS:
        pause(**target(*one))
    for place, one in enumerate(TARGETS, 1):
        assert ends(*one)
        assert not ends(*one), "it is not paused"
        assert targets() == TARGETS[place:]
    pause(queue="mail", duration=HOUR)
    Pause.objects.update(until=timezone.now() - HOUR)
    assert not ends("queue", "mail")
    assert targets() == []


# -- what is refused where it can be given

PAST, SOON, FAR = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2060, 9000))
ALL = "python sql command page"
ZERO, LONG, NAIVE = timedelta(0), timedelta(40_000), datetime(2050, 1, 1)  # noqa: DTZ001
BAD: list[tuple[Any, Any, dict[str, Any], str]] = [
    ("topic", "x", {}, "sql page"), (None, "", {}, "sql"), ("all", "x", {}, "sql page"),
    ("queue", "", {}, "python sql page"), ("queue", "a b", {}, ALL),
    ("task", "sync", {}, ALL), ("task", f"a.{'b' * 254}", {}, ALL),
    ("task", len, {}, "python"), ("group", "", {}, ALL),
    ("limit_key", "x" * 201, {}, "python sql command"), ("argument", SYNC, {}, ALL),
    ("argument", "sync kwargs.a=1", {}, "python sql page"),
    ("argument", f"{SYNC} kwargs.a.b=1", {}, "python sql page"),
    ("argument", f"{SYNC} kwargs.password=1", {}, "python command page"),
    ("argument", f"{SYNC} args.0={'x' * 255}", {}, "python sql page"),
    *(("all", "", {"until": until}, ALL) for until in (PAST, FAR)),
    *(("all", "", {"until": until}, "python") for until in (NAIVE, HOUR)),
    ("all", "", {"until": "infinity"}, "sql"), ("all", "", {"duration": "178000000 years"}, "sql"),
    *(("all", "", {"duration": duration}, "python sql command") for duration in (ZERO, LONG)),
    ("all", "", {"duration": -HOUR}, "python sql"),
    ("all", "", {"until": SOON, "duration": HOUR}, "python sql command"),
    ("all", "", {"reason": "r" * 401}, ALL),
    ("all", "", {"reason": "\0"}, "python command page"),
    ("all", "", {"author": "a" * 151}, "python sql command"),
]  # fmt: skip


def test_bad_values_are_refused(admin_client: Client, wording: Any) -> None:
    said = []
    for kind, name, options, levels in BAD:
        for level in levels.split():
            with pytest.raises(REFUSALS) as refused, transaction.atomic():
                LEVELS[level](admin_client, kind, name, **options)
            cause: Any = refused.value.__cause__
            assert getattr(cause, "sqlstate", "22023") == "22023"
            text = cause.diag.message_primary if hasattr(cause, "diag") else refused.value
            said.append(f"{level}: {text}")
    assert "\n".join(said) == wording
    assert targets() == []


@pytest.mark.parametrize("given", [{}, {"queue": "mail", "everything": True}])
def test_there_is_one_target(given: dict[str, Any]) -> None:
    for call in (pause, resume):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) takes exactly one of"):
            call(**given)


@pytest.mark.parametrize(("kind", "name"), [("topic", "x"), ("all", "x"), ("queue", "")])
def test_bad_rows_are_refused_by_the_table(kind: str, name: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Pause.objects.create(kind=kind, name=name)


# -- more of Python


def test_a_task_can_be_given_itself() -> None:
    pause(task=noop)
    assert targets() == [("task", noop.module_path)]
    assert resume(task=noop)


@pytest.mark.django_db(transaction=True)
def test_the_workers_are_told_at_the_commit(connect: Connect) -> None:
    worker, listener = WorkerFactory.create(), connect(autocommit=True)
    [channel] = listener.execute("SELECT _pgqueue_channel()").fetchone() or [""]
    listener.execute(f'LISTEN "{channel}"')
    pause(queue="mail")
    resume(queue="mail")
    resume(queue="mail")
    with transaction.atomic():
        assert drain_worker(worker)
        heard = [note.payload for note in listener.notifies(timeout=20, stop_after=2)]
        assert heard == ["pause", "pause"]
    assert [note.payload for note in listener.notifies(timeout=20, stop_after=1)] == ["drain"]


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_can_be_named() -> None:
    assert pause(queue="mail", using="other")._state.db == "other"
    assert not Pause.objects.exists()
    assert not resume(queue="mail")
    assert resume(queue="mail", using="other")


# -- a worker is drained


@pytest.mark.promise("drain-stays")
def test_a_stop_is_not_taken_back() -> None:
    worker = WorkerFactory.create()
    assert drain_worker(worker)
    assert Worker.objects.get().drain == "replace"
    assert drain_worker(worker.pk, replace=False)
    assert drain_worker(worker)
    assert Worker.objects.get().drain == "stop"
    assert not drain_worker(worker.pk + 1)
    other = WorkerFactory.create()
    assert sql("SELECT pgqueue_drain_worker(%s)", other.pk)
    assert Worker.objects.get(pk=other.pk).drain == "replace"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_is_that_of_the_worker_or_the_one_that_is_named() -> None:
    here, there = WorkerFactory.create(), WorkerFactory.create()
    Worker.objects.using("other").create(**Worker.objects.values().get(pk=there.pk))
    there.delete()
    row = Worker.objects.using("other").get()
    assert not drain_worker(row.pk)
    assert drain_worker(row)
    assert drain_worker(row.pk, replace=False, using="other")
    assert Worker.objects.using("other").get().drain == "stop"
    here.refresh_from_db()
    assert here.drain == ""


def test_bad_values_of_a_drain_are_refused(wording: Any) -> None:
    drain: Any = drain_worker
    calls = [partial(drain, "app-1:77"), partial(drain, True), partial(drain, 1, replace="stop")]
    assert refusals(TypeError, *calls) == wording
    assert refusals(ValueError, partial(drain, 2**63)) == wording
