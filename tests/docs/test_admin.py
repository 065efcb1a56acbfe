"""The page about the admin: the template that extends the overview, and the zone of each user."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from tests.support.factories import WorkerFactory

from .shop import EXAMPLES


@pytest.mark.django_db
def test_a_project_adds_to_the_overview(client: Client, settings: Any) -> None:
    source = (EXAMPLES / "console" / "overview.html").read_text()
    [templates] = settings.TEMPLATES
    loaders = [
        ("django.template.loaders.locmem.Loader", {"admin/django_pgqueue/overview.html": source}),
        "django.template.loaders.app_directories.Loader",
    ]
    own = {**templates, "APP_DIRS": False, "OPTIONS": {**templates["OPTIONS"], "loaders": loaders}}
    client.force_login(User.objects.create_superuser("root"))
    with override_settings(TEMPLATES=[own]):
        page = client.get("/admin/django_pgqueue/job/overview/").content.decode()
        assert "1 problem: no worker claims jobs. Call the shop team." in page
        assert page.index('id="pgqueue-board"') < page.index("Status of our suppliers")
        WorkerFactory.create()
        part = client.get("/admin/django_pgqueue/job/overview/", {"part": "now"}).content.decode()
    assert 'id="shop-runbook"' in part
    assert "<p>Nothing.</p>" in part
    assert "<html" not in part


@pytest.mark.django_db
def test_users_choose_the_zone_of_the_times(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "shop.zones.zone_of_the_user"]
    client.force_login(User.objects.create_superuser("root"))
    address = "/admin/django_pgqueue/job/overview/"
    assert "data-pgqueue-kept" not in client.get(address).content.decode()
    for zone in ("Asia/Tokyo", "Etc/UTC"):
        session = client.session
        session["zone"] = zone
        session.save()
        page = client.get(address).content.decode()
        assert f'data-pgqueue-zone="{zone}" data-pgqueue-kept>' in page
