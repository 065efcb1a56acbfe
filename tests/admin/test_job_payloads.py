"""The payload on the page of its job, and the job in the admin of its payload."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgqueue import cancel
from django_pgqueue.models import DeclaredTask
from tests.receipts.models import Charge, Order, Receipt
from tests.support.factories import JobFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db


@pytest.fixture
def receipt() -> Receipt:
    return Receipt.objects.create(order=Order.objects.create(pk=17), email="<b>@c.d")


def payload_on(client: Client, pk: int) -> str:
    page = body(client, url("change", pk))
    return page.split('id="pgqueue-payload"')[1].split("</section>")[0] if "pgqueue-payload" in page else ""


def page_of(row: Receipt | None = None) -> str:
    if row is None:
        return reverse("admin:receipts_receipt_changelist")
    return reverse("admin:receipts_receipt_change", args=[row.pk])


def allowed(*names: str) -> Client:
    client = staff("view_job", "view_arguments_job")
    User.objects.get().user_permissions.add(*Permission.objects.filter(codename__in=names))
    return client


def test_a_job_shows_its_row(root: Client, receipt: Receipt) -> None:
    shown = payload_on(root, receipt.pk)
    for text in (
        ">Receipt</h2>",
        "Email",
        "&lt;b&gt;@c.d",
        "Order",
        "<td>17</td>",
        f'href="{page_of(receipt)}"',
    ):
        assert text in shown
    assert "Job</th>" not in shown


def test_a_row_that_is_gone(root: Client, receipt: Receipt) -> None:
    key = receipt.pk
    receipt.delete()
    assert "The row does not exist." in payload_on(root, key)


def test_a_model_without_an_admin_needs_its_own_permission(receipt: Receipt) -> None:
    key = Charge.objects.create(order=receipt.order, email="c@b.c").pk
    client = allowed("view_charge")
    assert "c@b.c" in payload_on(client, key)
    assert "href" not in payload_on(client, key)
    assert payload_on(client, receipt.pk) == ""


def test_jobs_without_a_payload_ask_nothing(
    root: Client, django_assert_max_num_queries: Callable[..., object]
) -> None:
    assert payload_on(root, JobFactory.create().pk) == ""
    DeclaredTask.objects.filter(model="receipts.Charge").update(model="elsewhere.Charge")
    job = Charge.objects.create(order=Order.objects.create(), email="c@b.c").job
    assert payload_on(root, job.pk) == ""


def test_a_row_shows_its_job(root: Client, receipt: Receipt) -> None:
    cancel(receipt.job)
    waiting = Receipt.objects.create(order=receipt.order, email="w@b.c")
    gone = Receipt.objects.create(order=receipt.order, email="gone@b.c")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgqueue_job WHERE id = %s", [gone.pk])
        cursor.execute("UPDATE pgqueue_job_live SET status = 'blocked', waiting_reason = 'paused: <i>'")
    shown = body(root, page_of())
    for text in ("pgqueue-cancelled", "pgqueue-blocked", "paused: &lt;i&gt;", "no longer kept", "gone@b.c"):
        assert text in shown
    assert f'<a href="{url("change", waiting.pk)}">{waiting.pk}</a>' in shown
    assert url("change", gone.pk) not in shown
    page = body(root, page_of(waiting))
    assert "pgqueue-blocked" in page
    assert url("change", waiting.pk) in page
    assert "job_status" not in body(root, reverse("admin:receipts_receipt_add"))


def test_the_link_is_only_for_those_who_may_view_jobs(receipt: Receipt) -> None:
    client = staff()
    User.objects.get().user_permissions.set(Permission.objects.filter(codename="view_receipt"))
    shown = body(client, page_of())
    assert "pgqueue-pending" in shown
    assert url("change", receipt.pk) not in shown


def test_the_list_takes_one_query_for_all_jobs(
    root: Client, receipt: Receipt, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    Receipt.objects.bulk_create([Receipt(order=receipt.order, email="x@b.c") for _ in range(20)])
    with django_assert_max_num_queries(7):  # type: ignore[attr-defined]
        body(root, page_of())
