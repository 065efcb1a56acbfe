"""Under ASGI, a job commits with the rows of its view, and rolls back with them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.handlers.asgi import ASGIHandler
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_pgqueue import aenqueue, enqueue
from django_pgqueue.models import Job
from tests.app.models import Entry
from tests.app.tasks import noop
from tests.support.waiting import DEADLINE, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

ENQUEUED, GO_ON = threading.Event(), threading.Event()


def place(name: str) -> None:
    """Write a row and enqueue a job."""
    Entry.objects.create(key=name)
    enqueue(noop)
    ENQUEUED.set()
    assert GO_ON.wait(DEADLINE)
    if name == "refused":
        raise ValueError(name)


async def atomically(request: HttpRequest, name: str) -> HttpResponse:
    await sync_to_async(transaction.atomic(place))(name)
    return HttpResponse(status=204)


@transaction.non_atomic_requests
async def exempt(request: HttpRequest, name: str) -> HttpResponse:
    return await atomically(request, name)


async def separately(request: HttpRequest, name: str) -> HttpResponse:
    """Without a transaction: the job is committed at once."""
    await Entry.objects.acreate(key=name)
    await aenqueue(noop)
    raise ValueError(name)


def synchronously(request: HttpRequest, name: str) -> HttpResponse:
    place(name)
    return HttpResponse(status=204)


urlpatterns = [
    path("atomically/<name>", atomically),
    path("separately/<name>", separately),
    path("synchronously/<name>", synchronously),
    path("exempt/<name>", exempt),
]


@pytest.fixture(autouse=True)
def events() -> Iterator[None]:
    ENQUEUED.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


async def get(url: str, *, between: Any = None) -> int:
    """Send a request, and return the status. ``between`` is awaited while the view is in its transaction."""
    scope = {"type": "http", "method": "GET", "path": url, "query_string": b"", "headers": []}
    communicate: Any = ApplicationCommunicator  # it is not typed
    request = communicate(ASGIHandler(), scope)
    await request.send_input({"type": "http.request"})
    if between is not None:
        assert await asyncio.to_thread(ENQUEUED.wait, DEADLINE)
        await between()
    GO_ON.set()
    status: int = (await request.receive_output(DEADLINE))["status"]
    await request.receive_output(DEADLINE)
    await request.wait(DEADLINE)
    return status


async def nothing_is_there() -> None:
    assert not await Job.objects.aexists()


@pytest.mark.parametrize(("name", "status", "count"), [("accepted", 204, 1), ("refused", 500, 0)])
@pytest.mark.promise("exists-if-committed")
def test_a_job_commits_or_rolls_back_with_the_rows_of_its_view(name: str, status: int, count: int) -> None:
    assert run(get(f"/atomically/{name}", between=nothing_is_there)) == status
    assert (Entry.objects.count(), Job.objects.count()) == (count, count)


def test_without_a_transaction_a_view_that_fails_leaves_the_job() -> None:
    assert run(get("/separately/refused")) == 500
    assert (Entry.objects.count(), Job.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    ("url", "status", "count"),
    [
        ("/synchronously/accepted", 204, 1),
        ("/synchronously/refused", 500, 0),
        ("/atomically/accepted", 500, 0),  # Django refuses: the view is async
        ("/exempt/accepted", 204, 1),
    ],
)
def test_atomic_requests(url: str, status: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert run(get(url)) == status
    assert (Entry.objects.count(), Job.objects.count()) == (count, count)
