"""What an enqueue captures, and what it refuses to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils import translation

from django_pgqueue import Unique, aenqueue, enqueue, enqueue_many
from django_pgqueue.context import acting_as, capture, user_from
from django_pgqueue.exceptions import InvalidJSON
from django_pgqueue.middleware import CurrentUserMiddleware, TraceContextMiddleware
from django_pgqueue.models import Job
from django_pgqueue.telemetry.tracing import CARRIER
from tests.app import context_tasks as tasks
from tests.jobs.test_enqueue import in_each_way
from tests.settings import MIDDLEWARE
from tests.support.wording import refusals

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = {"traceparent": PARENT}


def captured() -> dict[str, Any]:
    return json.loads(capture() or "{}")  # type: ignore[no-any-return]


@pytest.fixture
def carrier() -> Iterator[None]:
    token = CARRIER.set(TRACE)
    yield
    CARRIER.reset(token)


@pytest.fixture
def tenant(settings: Any) -> Iterator[None]:
    settings.PGQUEUE = {"CONTEXT": [tasks.TENANT_PATH]}
    token = tasks.TENANT.set({"id": 5})
    yield
    tasks.TENANT.reset(token)


def test_a_plain_call_carries_nothing(settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": ["language", "trace", "user", tasks.TENANT_PATH]}
    assert capture() is None
    with translation.override(settings.LANGUAGE_CODE):
        assert capture() is None
    with translation.override(None):
        assert capture() is None


@pytest.mark.usefixtures("carrier")
def test_the_names_of_the_setting_decide(settings: Any) -> None:
    with translation.override("de"):
        assert captured() == {"language": "de", "trace": TRACE}
        settings.USE_I18N = False
        assert captured() == {"trace": TRACE}
        settings.USE_I18N = True
        settings.PGQUEUE = {"CONTEXT": ["trace"]}
        assert captured() == {"trace": TRACE}
        settings.PGQUEUE = {"CONTEXT": []}
        assert capture() is None


@pytest.mark.usefixtures("carrier")
def test_a_carrier_that_is_too_large_loses_what_matters_least() -> None:
    token = CARRIER.set({"baggage": "x" * 4096, **TRACE, "tracestate": "a=1"})
    try:
        assert captured() == {"trace": {**TRACE, "tracestate": "a=1"}}
    finally:
        CARRIER.reset(token)


@pytest.mark.parametrize(("user", "key"), [
    (None, None), (SimpleNamespace(is_authenticated=False, pk=None), None), (7, 7), ("u-7", "u-7"),
    (SimpleNamespace(is_authenticated=True, pk=5), 5),
    (SimpleNamespace(is_authenticated=True, pk=UUID(int=5)), str(UUID(int=5))),
])  # fmt: skip
def test_the_user_is_captured_if_asked(user: Any, key: Any, settings: Any) -> None:
    with acting_as(user):
        assert capture() is None
        settings.PGQUEUE = {"CONTEXT": ["user"]}
        assert captured().get("user") == key
    assert capture() is None
    settings.PGQUEUE = {}
    with user_from(lambda: pytest.fail("nobody asks for it")):
        capture()


@pytest.mark.usefixtures("tenant")
def test_context_variables_are_captured_if_they_are_set() -> None:
    assert captured() == {"vars": {tasks.TENANT_PATH: {"id": 5}}}
    token = tasks.TENANT.set(None)
    assert captured() == {"vars": {tasks.TENANT_PATH: None}}
    tasks.TENANT.reset(token)


@pytest.mark.usefixtures("tenant")
@pytest.mark.promise("context-refused")
def test_what_cannot_travel_is_refused_at_the_enqueue(settings: Any, wording: Any) -> None:
    def travels(value: Any) -> None:
        tasks.TENANT.set(value)
        enqueue(tasks.look)

    def names(path: str) -> None:
        settings.PGQUEUE = {"CONTEXT": [path]}
        enqueue(tasks.look)

    values = (Decimal(1), float("nan"), "x" * 9000)
    assert refusals(InvalidJSON, *(partial(travels, value) for value in values)) == wording
    paths = ("no.such.tenant", "tests.app.context_tasks.look")
    assert refusals(ImproperlyConfigured, *(partial(names, path) for path in paths)) == wording


@pytest.mark.django_db
@pytest.mark.usefixtures("carrier")
@pytest.mark.promise("context-carried")
@in_each_way
def test_every_way_to_enqueue_stores_it(way: Callable[[Any], Any], settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": ["language", "trace", "user"]}
    way(tasks.look.bind())
    with translation.override("de"), acting_as(5):
        way(tasks.look.using(limit_key="k", group_key="g", unique_key="u").bind())
    plain, job = Job.objects.order_by("pk")
    assert (plain.context, plain.user_id) == ({"trace": TRACE}, None)
    assert (job.context, job.user_id) == ({"language": "de", "trace": TRACE, "user": 5}, 5)
    assert job.traceparent == TRACE["traceparent"]
    assert (job.limit_key, job.group_key) == ("tests.app.context_tasks.look/k", "g")


@pytest.mark.django_db
def test_a_replaced_twin_gets_the_context_of_the_call_that_replaces_it() -> None:
    unique = tasks.look.using(unique=Unique(on_conflict="replace"))
    first = enqueue(unique)
    with translation.override("de"):
        second = enqueue(unique)
    assert (second.pk, second.context) == (first.pk, {"language": "de"})
    assert enqueue_many([unique.bind()])[0].context is None


# -- the middleware gives jobs the user and the trace of a request


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


def test_only_a_valid_trace_context_is_carried(wording: Any) -> None:
    carried = []
    middleware: Any = TraceContextMiddleware(lambda _: carried.append(capture()))
    for parent, state in [
        (PARENT, ""), (PARENT, "x" * 513), (f"01{PARENT[2:]}-more", ""), (PARENT.upper(), "a=1"),
        (f"ff{PARENT[2:]}", ""), (PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), ""),
        (f"01{PARENT[2:]}-{'x' * 200}", ""), ("", "a=1"),
    ]:  # fmt: skip
        middleware(RequestFactory().get("/", headers={"traceparent": parent, "tracestate": state}))
    assert carried == wording


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
