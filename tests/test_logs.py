"""The log records of a job carry its id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue.jobs.current import RUNNING
from django_pgqueue.logs import JobFilter
from tests.support.rows import claimed

FORM = "%(job_id)s %(task_path)s %(queue_name)s %(attempt)s %(message)s"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a handler with the filter writes."""
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    handler = Handler()
    handler.addFilter(JobFilter())
    handler.setFormatter(logging.Formatter(FORM))
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.fixture
def running() -> Iterator[None]:
    job: Any = SimpleNamespace(
        row=claimed(7, "shop.tasks.send", queue_name="mail", attempts=3, forgiven_attempts=1)
    )
    token = RUNNING.set(job)
    yield
    RUNNING.reset(token)


@pytest.mark.usefixtures("running")
def test_a_record_of_a_job_has_its_id(lines: list[str]) -> None:
    logging.getLogger("shop").warning("sync")

    async def body() -> None:
        logging.getLogger("shop").warning("async")
        await asyncio.to_thread(logging.getLogger("shop").warning, "thread")

    asyncio.run(body())
    assert lines == [f"7 shop.tasks.send mail 2 {where}" for where in ("sync", "async", "thread")]


def test_other_records_have_nothing(lines: list[str]) -> None:
    logging.getLogger("shop").warning("a request")
    assert lines == ["- - - - a request"]
    record = logging.makeLogRecord({})
    assert JobFilter(nothing=None).filter(record)
    assert (record.__dict__["job_id"], record.__dict__["attempt"]) == (None, None)


@pytest.mark.usefixtures("running")
def test_what_a_record_says_itself_is_kept() -> None:
    record = logging.makeLogRecord({"job_id": 8})
    JobFilter().filter(record)
    assert record.__dict__["job_id"] == 8
