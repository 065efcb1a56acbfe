"""The middleware gives jobs the user and the trace of a request, and reads neither for other requests."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path

from django_pgqueue import aenqueue, enqueue
from django_pgqueue.context import capture
from django_pgqueue.middleware import CurrentUserMiddleware, TraceContextMiddleware
from django_pgqueue.models import Job
from tests.app import context_tasks as tasks
from tests.settings import MIDDLEWARE

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def quiet(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def busy(request: HttpRequest) -> HttpResponse:
    return HttpResponse(enqueue(tasks.look).pk)


async def abusy(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await aenqueue(tasks.look)).pk)


urlpatterns = [path("quiet", quiet), path("busy", busy), path("abusy", abusy)]


def context_of(response: Any) -> Any:
    return Job.objects.get(pk=int(response.content)).context


@pytest.fixture
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [
        *MIDDLEWARE,
        "django_pgqueue.middleware.CurrentUserMiddleware",
        "django_pgqueue.middleware.TraceContextMiddleware",
    ]
    settings.PGQUEUE = {"CONTEXT": ["trace", "user"]}


@pytest.mark.django_db
@pytest.mark.usefixtures("_site")
def test_a_request_that_enqueues_nothing_is_not_touched(
    client: Client, django_assert_num_queries: Any
) -> None:
    client.force_login(User.objects.create_user("ada"))
    with django_assert_num_queries(0):
        assert not client.get("/quiet").has_header("Vary")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_site")
@pytest.mark.parametrize("address", ["/busy", "/abusy"])
@pytest.mark.parametrize("is_async", [False, True])
def test_jobs_of_a_request_carry_its_user_and_its_trace(address: str, is_async: bool) -> None:
    user = User.objects.create_user("ada")
    expected = {"trace": {"traceparent": PARENT, "tracestate": "a=1"}, "user": user.pk}
    headers = {"traceparent": PARENT, "tracestate": "a=1"}
    response: Any
    if is_async:
        async_client = AsyncClient()
        async_client.force_login(user)
        response = async_to_sync(async_client.get)(address, headers=headers)
    else:
        client = Client()
        client.force_login(user)
        response = client.get(address, headers=headers)
    assert context_of(response) == expected
    assert capture() is None
    assert context_of(Client().get(address)) is None


@pytest.mark.parametrize(
    ("parent", "state", "carried"),
    [
        (PARENT, "", {"traceparent": PARENT}),
        (PARENT, "x" * 513, {"traceparent": PARENT}),
        (f"01{PARENT[2:]}-more", "", {"traceparent": f"01{PARENT[2:]}-more"}),
        (PARENT.upper(), "a=1", None),
        (f"ff{PARENT[2:]}", "", None),
        (PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), "", None),
        (f"01{PARENT[2:]}-{'x' * 200}", "", None),
        ("", "a=1", None),
    ],
)
def test_only_a_valid_trace_context_is_carried(parent: str, state: str, carried: Any) -> None:
    found = []
    middleware: Any = TraceContextMiddleware(lambda _: found.append(capture()))
    middleware(RequestFactory().get("/", headers={"traceparent": parent, "tracestate": state}))
    assert [json.loads(each)["trace"] if each else None for each in found] == [carried]


def test_requests_at_the_same_time_do_not_mix(settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": ["user"]}
    here = asyncio.Barrier(2)

    async def view(request: Any) -> Any:
        await here.wait()  # both are inside
        found = json.loads(capture() or "{}")
        await here.wait()
        return found

    middleware: Any = CurrentUserMiddleware(view)
    assert iscoroutinefunction(middleware)
    assert not iscoroutinefunction(CurrentUserMiddleware(quiet))

    async def both() -> list[Any]:
        requests: list[Any] = [SimpleNamespace(user=pk) for pk in (1, 2)]
        return await asyncio.gather(*map(middleware, requests))

    assert async_to_sync(both)() == [{"user": 1}, {"user": 2}]
