"""The time limit for each statement of a page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory

from django_pgqueue.admin import base
from django_pgqueue.admin.base import limited
from django_pgqueue.models import Queue
from tests.support.sessions import Connect

from .helpers import staff, url

ADMIN: Any = admin.site.get_model_admin(Queue)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SECONDS", 0.2)


def current() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def request(method: str, user: Any) -> HttpRequest:
    made = RequestFactory().generic(method, "/")
    made.user = user
    return made


def answer(method: str = "GET", user: Any = None) -> str:
    """Return the limit that a view has."""
    view = limited(ADMIN, lambda request: HttpResponse(current()))
    found = view(request(method, user or User(is_staff=True, is_active=True)))
    assert isinstance(found, HttpResponse)
    return found.content.decode()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("may_see_the_database", [True, False])
def test_a_page_that_waits_for_a_lock_says_so(connect: Connect, may_see_the_database: bool) -> None:
    migration = connect()
    migration.execute("LOCK TABLE pgqueue_limit")
    client = staff("view_limit", *(["view_jobstat"] if may_see_the_database else []))
    found = client.get(url("changelist", model="limit"))
    assert found.status_code == 503
    text = found.content.decode()
    assert "A statement of this page took longer than" in text
    assert ("Who waits for whom in the database" in text) is may_see_the_database
    migration.rollback()
    assert client.get(url("changelist", model="limit")).status_code == 200


@pytest.mark.django_db
def test_only_pages_that_are_read_by_the_staff_are_limited() -> None:
    assert answer() == "200ms"
    assert answer("HEAD") == "200ms"
    assert answer("POST") == "0"
    assert answer(user=AnonymousUser()) == "0"
    assert current() == "0"


class Lazy:
    """Is read by the template."""

    def __str__(self) -> str:
        return current()

    def sleep(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(10)")


@pytest.mark.django_db
def test_what_a_template_reads_is_limited(root: Client) -> None:
    def page(source: str) -> Any:
        template = engines["django"].from_string(source)
        view = limited(ADMIN, lambda request: TemplateResponse(request, template, {"lazy": Lazy()}))
        return view(request("GET", User(is_staff=True, is_active=True, is_superuser=True)))

    fast = page("{{ lazy }}").render()
    assert fast.content.decode() == "200ms"
    assert "render" not in vars(fast)
    slow = page("{{ lazy.sleep }}").render()
    assert slow.status_code == 503
    assert current() == "0"
