"""The panel, the links and the replaced block of the page of a job."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from django_pgqueue import redaction
from django_pgqueue.admin.job_page import page as job_page

from .shop import DOCS, EXAMPLES, example, in_shop

BLOCKS = re.findall(
    r"{% block (pgqueue_\w+) %}",
    (DOCS.parent / "django_pgqueue/templates/admin/django_pgqueue/job/change_form.html").read_text(),
)


@in_shop
def test_what_the_shop_adds_to_its_jobs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_page, "_declared", {})
    monkeypatch.setattr(redaction, "_not_before", {})  # the shop was not there in other tests
    example("job_links")
    job_page.links_for(example("tasks").send_receipt)(example("job_links").receipt_links)
    job = example("orders").place_order("ann@example.com", 5)
    client.force_login(User.objects.create_superuser("root"))
    folder = str(EXAMPLES / "shop" / "templates")
    with override_settings(TEMPLATES=[{**settings.TEMPLATES[0], "DIRS": [folder]}]):
        page = client.get(reverse("admin:django_pgqueue_job_change", args=[job.pk])).content.decode()
    [order] = job.args
    assert f"<p>Order {order}, attempt 0.</p>" in page
    assert f'<a href="/orders/{order}/">Order {order}</a>' in page
    assert "https://wiki.example/jobs/shop.tasks.send_receipt" in page
    assert "pgqueue-timeline" not in page


def test_the_page_lists_all_blocks() -> None:
    assert len(BLOCKS) == len(set(BLOCKS)) > 5
    listed = re.findall(
        r"^\| `(pgqueue_\w+)`", (DOCS / "howto" / "custom-panels.md").read_text(), re.MULTILINE
    )
    assert listed == BLOCKS
