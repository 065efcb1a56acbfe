"""A web process of either release, and its admin.

    python -P <this file> web <first number> <jobs in a second>
    python -P <this file> pages

The first enqueues jobs, cancels some, and reads results until it is told to end. The second opens all pages
of the admin, with the code of a release on the current tables.

It runs in the folder of its release, with that folder as ``PYTHONPATH``. So it uses only what both have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import django

ROWS = 4
"""Rows of each model whose pages are opened."""
LEAST = 30
"""At least so many pages are there."""
FINE = {200, 302, 403, 404, 405}
"""Also what nobody may do, such as deleting a job, what is gone meanwhile, and what takes no GET."""


def web(first: int, rate: float) -> None:
    """Enqueue until the process is told to end. An error ends it."""
    django.setup()
    from django.db import connections

    from django_pgqueue import cancel
    from django_pgqueue.models import Job
    from tests.app.ledger_tasks import sync_effect
    from tests.chaos.harness.ledger import FOLDER, Ledger
    from tests.chaos.harness.load import Load

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    load = Load(Ledger(os.environ[FOLDER]), Random(first), rate=rate, backlog=10_000, first=first)
    later = sync_effect.using(run_after=timedelta(hours=1))
    with load.running():
        while not stop.wait(0.2):
            number = load.enqueue(lambda number: later.bind(number, 0.0), expects="cancelled")
            assert cancel(Job.objects.get(args__0=number)) == 1
            for job in Job.objects.order_by("-pk")[:3]:  # each column, with the names of this release
                assert job.result is None
    connections.close_all()


def pages() -> None:
    """Open all pages that need no row, and those of the newest rows of each model. One that fails ends it."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    from tests import settings

    settings.DATABASES = json.loads(os.environ["TEST_DATABASES"])
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.test.utils import setup_test_environment

    for app in ("contenttypes", "auth", "admin", "sessions"):
        call_command("migrate", app, verbosity=0)
    setup_test_environment()
    client = Client()  # raises the errors of a page
    client.force_login(User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)[0])
    seen = [(address, client.get(address).status_code) for address in _addresses()]
    bad = [(address, code) for address, code in seen if code not in FINE]
    assert not bad, bad
    assert sum(code == 200 for _, code in seen) >= LEAST, seen


def _addresses() -> Iterator[str]:
    from django.contrib import admin
    from django.contrib.admin.utils import quote
    from django.urls import reverse

    for model, page in admin.site._registry.items():
        if model._meta.app_label != "django_pgqueue":
            continue
        keys: list[Any] = list(model._default_manager.order_by("-pk").values_list("pk", flat=True)[:ROWS])
        for pattern in page.get_urls():
            wanted = set(pattern.pattern.converters)
            if pattern.name and wanted <= {"object_id"}:
                for values in [{"object_id": quote(key)} for key in keys] if wanted else [{}]:
                    yield reverse(f"admin:{pattern.name}", kwargs=values)


if __name__ == "__main__":
    pages() if sys.argv[1] == "pages" else web(int(sys.argv[2]), float(sys.argv[3]))
