"""Fixtures: one database with the demonstration, one server, one browser; for each test a fresh window.

They are made once, because the demonstration takes as long as many tests. So a test that changes something
changes a row that no other test looks at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from django.test.utils import setup_databases, teardown_databases

from django_pgqueue.demonstration.seed import keep_alive, seed

from .faults import Faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from pytest_django.plugin import DjangoDbBlocker

#: To look at a few pages while they are written, fewer rows will do.
ROWS = int(os.environ.get("BROWSER_ROWS", "1000000"))
#: How the pages are looked at.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
    "wide": {"color_scheme": "dark", "viewport": {"width": 1600, "height": 1000}},
    "plain": {"java_script_enabled": False, "viewport": {"width": 1280, "height": 900}},
}
#: What each kind of user may do, as the last part of the names of permissions.
USERS = {
    "root": "superuser",
    "viewer": "view_",
    "operator": (
        "view_ cancel_ retry_ run_ extend_ edit_ drain_ pause_ change_queue change_schedule add_pause"
        " delete_pause"
    ),
    "stranger": "",
}


@pytest.fixture(scope="session")
def console(django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The address of a server with the data of the demonstration, and with users of each kind.

    The mark ``django_db`` would empty the database after each test.
    """
    with django_db_blocker.unblock():
        databases = setup_databases(verbosity=0, interactive=False, aliases={"default": None, "other": None})
        seed("default", ROWS)
        for name, rights in USERS.items():
            _add_user(name, rights)
        thread = LiveServerThread("127.0.0.1", StaticFilesHandler)
        thread.start()
        thread.is_ready.wait()
        assert not thread.error, thread.error
        yield f"http://{thread.host}:{thread.port}"
        thread.terminate()
        with connections["default"].cursor() as cursor:  # requests of pages that refresh themselves
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        connections.close_all()
        teardown_databases(databases, verbosity=0)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        message = "chromium is not installed; on Debian and Ubuntu, run: apt install chromium"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def faults() -> Iterator[Faults]:
    """What the browser complains about. At the end of the test, there must be nothing."""
    found = Faults()
    yield found
    assert found == []


Open = Callable[..., "Page"]


@pytest.fixture
def window(console: str, chromium: Browser, faults: Faults) -> Iterator[Open]:
    """Open a window as a user: ``window("phone", user="viewer")``."""
    contexts = []

    def open_one(look: str = "light", *, user: str = "root") -> Page:
        keep_alive("default")
        context = chromium.new_context(base_url=console, **LOOKS[look])
        context.set_default_timeout(10_000)
        contexts.append(context)
        client = Client()
        client.force_login(User.objects.get(username=user))
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": console}])
        page = context.new_page()
        faults.watch(page)
        return page

    yield open_one
    for context in contexts:
        context.close()


def _add_user(name: str, rights: str) -> None:
    user = User.objects.create_user(name, is_staff=True, is_superuser=rights == "superuser")
    for permission in Permission.objects.filter(content_type__app_label="django_pgqueue"):
        # Its own permission: those who may look do not see arguments.
        if permission.codename.startswith(tuple(rights.split())) and "arguments" not in permission.codename:
            user.user_permissions.add(permission)
