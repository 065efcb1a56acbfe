"""Counts with their nouns, lengths of time, rates, log lines without control characters, and translations."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from babel.messages.catalog import Message
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

import django_pgqueue
from django_pgqueue.formatting import MOST_BYTES, age, counted, exact, get_logger, percent, rate, throughput
from django_pgqueue.jobs.current import RUNNING
from django_pgqueue.logs import JobFilter
from tests.support.catalogs import LANGUAGES, catalog, compiled, extracted, folder, strings
from tests.support.factories import JobFactory, claimed

from .admin.helpers import body, url

PACKAGE = Path(django_pgqueue.__file__).parent


FORMATTED: dict[Callable[..., str], list[tuple[Any, ...]]] = {
    counted: [
        (0, "job"), (1, "job"), (12_345, "job"), (1, "process", "processes"), (2, "index", "indices"),
    ],
    age: [(0,), (0.04,), (0.42,), (1.9,), (90,)],
    exact: [
        (timedelta(seconds=seconds),) for seconds in (0, 0.5, 1, 60, 90, 3600, 3660, 90_000, 90_060)
    ],
    rate: [
        (3, timedelta(seconds=1)), (100, timedelta(minutes=1)), (1_000, timedelta(hours=1)),
        (1, timedelta(days=1)), (100, timedelta(minutes=5)), (1, timedelta(seconds=90)),
    ],
    throughput: [(0,), (2 / 3600,), (0.2,), (0.02,), (2.46,), (1234,)],
    percent: [(0,), (0.004,), (0.29,), (1,), (0, 1), (0.0004, 1), (0.0589, 1)],
}  # fmt: skip


def test_counts_lengths_and_rates(wording: Any) -> None:
    calls = [(function, given) for function, several in FORMATTED.items() for given in several]
    texts = [f"{each.__name__}({', '.join(map(str, given))}): {each(*given)}" for each, given in calls]
    assert "\n".join(texts) == wording


BELL = "a\x07\x1b[2J\u202egpj.exe"
WRITTEN = "a\\x07\\x1b[2J\\u202egpj.exe"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@contextmanager
def written(
    logger: logging.Logger, *filters: logging.Filter, form: str = "%(message)s"
) -> Iterator[list[str]]:
    """What a project's own handler writes of a logger."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    handler.setFormatter(logging.Formatter(form))
    for each in filters:
        handler.addFilter(each)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    with written(get_logger("django_pgqueue.tests")) as lines:
        yield lines


@pytest.mark.parametrize(
    ("message", "arguments", "line"),
    [
        ("job %s %s: %d", (BELL, ValueError(f"no\n{BELL}"), 5), f"job {WRITTEN} no\\n{WRITTEN}: 5"),
        ("%(path)s is unknown", ({"path": BELL},), f"{WRITTEN} is unknown"),
        ("%r %s", (["x\n"], ["x\n"]), "['x\\n'] ['x\\n']"),
        ("two\nlines", (), "two\nlines"),
    ],
)
def test_no_line_of_a_log_has_control_characters(
    lines: list[str], message: str, arguments: tuple[Any, ...], line: str
) -> None:
    get_logger("django_pgqueue.tests").warning(message, *arguments)
    assert lines == [line]


@pytest.mark.parametrize("depth", [0, 1])
def test_no_traceback_in_a_log_has_control_characters(lines: list[str], depth: int) -> None:
    try:
        try:
            raise ValueError(f"first\n{BELL}" + "x" * 100_000)
        except ValueError as error:
            if depth:
                raise KeyError("another") from error
            raise
    except Exception:
        get_logger("django_pgqueue.tests").exception("failed")
    (text,) = lines
    assert text.startswith("failed\nTraceback (most recent call last):\n")
    assert f"ValueError: first\n{WRITTEN}" in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.encode()) < MOST_BYTES + 200


def test_an_exception_without_a_text_harms_nobody() -> None:
    """What is wrong with it is left to logging, which reports it."""
    error = Unprintable()
    given = {"msg": "failed: %s", "args": (error,), "exc_info": (Unprintable, error, None)}
    record = logging.makeLogRecord(given)
    assert get_logger("django_pgqueue.tests").filter(record)
    assert record.args == (error,)


def test_every_logger_of_the_package_is_of_this_kind() -> None:
    made = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "logging.getLogger(" in path.read_text()
    }
    assert made == {
        "formatting.py",  # makes them
        "compat.py",  # imports nothing of the package, and logs only a repr()
        "worker/executor/running_job.py",  # other people's loggers, by their names
        "worker/executor/task_signals.py",  # those of Django
        "worker/logs.py",  # sets levels
    }


# -- the log records of a job carry its id


@pytest.fixture
def shop() -> Iterator[list[str]]:
    form = "%(job_id)s %(task_path)s %(queue_name)s %(attempt)s %(message)s"
    with written(logging.getLogger("shop"), JobFilter(), form=form) as lines:
        yield lines


@pytest.fixture
def running() -> Iterator[None]:
    job: Any = SimpleNamespace(
        row=claimed(7, "shop.tasks.send", queue_name="mail", attempts=3, forgiven_attempts=1)
    )
    token = RUNNING.set(job)
    yield
    RUNNING.reset(token)


@pytest.mark.usefixtures("running")
def test_a_record_of_a_job_has_its_id(shop: list[str]) -> None:
    logging.getLogger("shop").warning("sync")

    async def body() -> None:
        logging.getLogger("shop").warning("async")
        await asyncio.to_thread(logging.getLogger("shop").warning, "thread")

    asyncio.run(body())
    assert shop == [f"7 shop.tasks.send mail 2 {where}" for where in ("sync", "async", "thread")]
    record = logging.makeLogRecord({"job_id": 8})
    JobFilter().filter(record)
    assert record.__dict__["job_id"] == 8, "what a record says itself is kept"


def test_other_records_have_nothing(shop: list[str]) -> None:
    logging.getLogger("shop").warning("a request")
    assert shop == ["- - - - a request"]
    record = logging.makeLogRecord({})
    assert JobFilter(nothing=None).filter(record)
    assert (record.__dict__["job_id"], record.__dict__["attempt"]) == (None, None)


# --- The catalogs: complete, compiled, with the placeholders of the English texts, and used by the pages


UPDATE = "run: python3 dev.py messages"
_TITLE = "Overview of the queues"
INTERNAL = re.compile(r"\b(ring|shelf|ticks?|verdict|told)\b", re.IGNORECASE)
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%%|\{\w*\}")


def ids(message: Message) -> tuple[str, ...]:
    return tuple(message.id) if isinstance(message.id, (tuple, list)) else (message.id,)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_is_translated_and_compiled(language: str) -> None:
    messages = catalog(language)
    keys = {message.id for message in messages}
    assert keys == {message.id for message in extracted()}, UPDATE
    assert [message.id for message in messages if message.id and not all(strings(message))] == []
    assert not any(message.fuzzy for message in messages if message.id)
    assert (folder(language) / "django.mo").read_bytes() == compiled(messages), UPDATE


def test_no_page_shows_words_of_the_code() -> None:
    """No page shows the column of the one that is left."""
    found = {
        text for message in extracted() for text in ids(message) if INTERNAL.search(PLACEHOLDER.sub("", text))
    }
    assert found == {"shelf"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_placeholders_are_those_of_the_english_text(language: str) -> None:
    """A plural form may leave out the number, as "one" does in English."""
    for message in catalog(language):
        if not message.id:
            continue
        allowed = {name for text in ids(message) for name in PLACEHOLDER.findall(text)}
        needed = set.intersection(*({*PLACEHOLDER.findall(text)} for text in ids(message)))
        for text in strings(message):
            found = set(PLACEHOLDER.findall(text))
            assert needed <= found <= allowed, (message.id, text)


@pytest.mark.django_db
@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_speak_the_language_of_the_user(client: Client, language: str) -> None:
    client.force_login(User.objects.create_superuser("root"))
    job = JobFactory.create(failed=True)
    with translation.override(language):
        for address, english in ((url("overview"), _TITLE), (url("change", job.pk), "Attempts")):
            translated = translation.gettext(english)
            assert translated != english
            assert translated in body(client, address)
