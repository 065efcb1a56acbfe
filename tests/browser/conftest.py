"""Fixtures: one database with the demonstration, one server, one browser; for each test a fresh window.

They are made once, because the demonstration takes as long as many tests. So a test that changes something
changes a row that no other test looks at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from django.test.utils import setup_databases, teardown_databases

from example_project.demo.shop.seed import keep_alive, seed

from .faults import Faults
from .hands import Pressed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page
    from pytest_django.plugin import DjangoDbBlocker

#: To look at a few pages while they are written, fewer rows will do.
ROWS = int(os.environ.get("BROWSER_ROWS", "100000"))
#: Without a GPU, drawing as if there were one takes a tenth of the time of the tests.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
#: For a button that does not come, or a page: milliseconds.
TIMEOUT = 10_000
#: How the pages are looked at.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
    "wide": {"color_scheme": "dark", "viewport": {"width": 1600, "height": 1000}},
    "plain": {"java_script_enabled": False, "viewport": {"width": 1280, "height": 900}},
}
#: What each kind of user may do, as the first parts of the names of permissions. The permission to see
#: arguments is granted only if it is named in full.
USERS = {
    "root": "superuser",
    "viewer": "view_",
    "operator": (
        "view_ cancel_ retry_ run_now_ enqueue_ extend_ edit_ drain_ mute_ pause_ add_pause change_pause"
        " delete_pause"
    ),
    "editor": "view_ view_arguments_job edit_ clone_ add_ change_ delete_",
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
        for alias in ("default", "other"):
            with connections[alias].cursor() as cursor:  # requests of pages that refresh themselves
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

    # The shell is the same browser without a window around the page, which nobody sees here.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        message = "chromium is not installed; on Debian and Ubuntu, run: apt install chromium"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def faults() -> Iterator[Faults]:
    """What the browser complains about. At the end of the test, there must be nothing."""
    found = Faults()
    yield found
    assert found == []


Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def profiles(console: str, chromium: Browser) -> dict[bool, Callable[..., BrowserContext]]:
    """Make a profile of the browser, in which a user is logged in: a fresh one, or one that is kept, so that
    static files are read once for each look and user.
    """

    def make(look: str, user: str, **more: Any) -> BrowserContext:
        profile = chromium.new_context(base_url=console, **LOOKS[look], **more)
        profile.set_default_timeout(TIMEOUT)
        client = Client()
        client.force_login(User.objects.get(username=user))
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        profile.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": console}])
        return profile

    return {True: make, False: cache(make)}


@pytest.fixture
def pressed() -> Pressed:
    """The actions that the windows of the test have sent."""
    return Pressed()


@pytest.fixture
def window(
    profiles: dict[bool, Callable[..., BrowserContext]], faults: Faults, pressed: Pressed
) -> Iterator[Open]:
    """Open a window as a user: ``window("phone", user="viewer")``. With ``fresh``, nothing is kept in it from
    other tests, and nothing for them. More options are those of the browser.
    """
    pages: list[Page] = []

    def open_one(look: str = "light", *, user: str = "root", fresh: bool = False, **more: Any) -> Page:
        keep_alive("default")
        page = profiles[fresh](look, user, **more).new_page()
        pages.append(page)
        faults.watch(page)
        page.on("request", pressed.note)
        return page

    yield open_one
    for page in pages:
        page.close()


def _add_user(name: str, rights: str) -> None:
    user = User.objects.create_user(name, is_staff=True, is_superuser=rights == "superuser")
    for permission in Permission.objects.filter(content_type__app_label="django_pgqueue"):
        codename, granted = permission.codename, rights.split()
        if codename in granted or ("arguments" not in codename and codename.startswith(tuple(granted))):
            user.user_permissions.add(permission)
