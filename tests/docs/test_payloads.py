"""The examples of payloads: an app of their own, whose migrations make the triggers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.db import connection
from django.test import TestCase, override_settings
from pytest_django import DjangoDbBlocker

from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs

from .shop import EXAMPLES, statements

pytestmark = pytest.mark.usefixtures("invoices")


@pytest.fixture(scope="module")
def invoices(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The app, importable as `invoices`, with its migrations applied."""
    sys.path.insert(0, str(EXAMPLES))
    with (
        django_db_blocker.unblock(),
        override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "invoices"]),
    ):
        call_command("migrate", "invoices", verbosity=0)
        call_command("makemigrations", "invoices", check=True, dry_run=True, verbosity=0)
        module("admin")  # as autodiscover imports it in a project
        yield
        if admin.site.is_registered(module("models").Invoice):
            admin.site.unregister(module("models").Invoice)
        call_command("migrate", "invoices", "zero", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM pgqueue_task WHERE model = 'invoices.Invoice'")
    sys.path.remove(str(EXAMPLES))


def module(name: str) -> Any:
    return import_module(f"invoices.{name}")


@pytest.mark.django_db
def test_the_ways_to_enqueue() -> None:
    sending, models = module("sending"), module("models")
    order = sending.checkout("ann@example.com", 142)
    later = Job.objects.get(pk=sending.remind(order))
    assert (later.priority, later.run_after > later.enqueued_at) == (-10, True)
    other = models.Order.objects.create(email="bob@example.com", total=1)
    assert len(sending.send_all([other])) == 1
    with connection.cursor() as cursor:
        cursor.execute(statements("payload"))
        assert cursor.fetchone() == (Job.objects.order_by("pk").last().pk,)  # type: ignore[union-attr]
    assert {job.queue_name for job in Job.objects.all()} == {"mail"}
    run_jobs()
    sent = module("tasks").SENT
    assert sorted(sent[-3:]) == [
        "ann@example.com: 142 (en)",
        "ann@example.com: 142 (fr)",
        "bob@example.com: 1 (en)",
    ]


@pytest.mark.django_db
def test_joins() -> None:
    sending, looking = module("sending"), module("looking")
    order = sending.checkout("ann@example.com", 142)
    assert looking.jobs_of(order).get().status == "pending"
    assert not looking.failed_for("ann@example.com").exists()
    order.email = "nowhere"
    order.save()
    with pytest.raises(ValueError, match="nowhere"):
        run_jobs()
    assert looking.jobs_of(order).get().status in {"retry", "failed"}


@pytest.mark.django_db
def test_the_tests_of_a_project() -> None:
    cases: type[TestCase] = module("tests").InvoiceTests
    for name in ("test_an_order_sends_an_invoice", "test_the_text"):
        getattr(cases(name), name)()


def test_the_admin_of_the_project() -> None:
    assert module("admin").InvoiceAdmin.list_display == ("order", "language", "job_status", "job_link")
