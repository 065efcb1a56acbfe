"""The page about the admin: the template that extends the overview."""

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
