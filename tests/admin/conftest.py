"""Fixtures for the tests of the admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.admin import JobAdmin
from django_pgqueue.admin.bulk import actions
from django_pgqueue.monitoring import queues


@pytest.fixture
def root(client: Client) -> Client:
    """A client of a superuser."""
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobAdmin, "list_per_page", 3)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine counts a few jobs in the time for the first look, too."""
    monkeypatch.setattr(actions, "FIRST_LOOK", 3.0)


@pytest.fixture(autouse=True)
def no_list_at_the_side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's list of all models takes a quarter of the time of a page."""
    if "list_at_the_side" not in request.fixturenames:
        monkeypatch.setattr(admin.AdminSite, "enable_nav_sidebar", False)
        monkeypatch.setattr(admin.AdminSite, "get_app_list", lambda *_: [])


@pytest.fixture
def list_at_the_side() -> None:
    """Pages as users see them, with that list."""


@pytest.fixture(autouse=True)
def no_shared_counts() -> Iterator[None]:
    """Each test counts its own jobs."""
    yield
    queues._shared.clear()
