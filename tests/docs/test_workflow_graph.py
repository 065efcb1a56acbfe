"""The drawing of the example workflow in the admin."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgqueue.models import Job

from .shop import example, in_shop


def boxes(client: Client, job: Job) -> list[tuple[str, str]]:
    page = client.get(reverse("admin:django_pgqueue_job_change", args=[job.pk])).content.decode()
    lines = re.findall(r'<text class="pgqueue-box-(?:name|state)"[^>]*>([^<]*)', page)
    return list(zip(lines[::2], lines[1::2], strict=True))


@in_shop
def test_an_album_is_drawn_one_by_one_or_folded(client: Client, shop: Any) -> None:
    client.force_login(User.objects.create_superuser("root"))
    album = example("album")
    small = album.publish_album("rome", [1, 2])
    batch = small.parent_ids[0]
    members = Job.objects.filter(batch_id=batch).order_by("pk").values_list("pk", flat=True)
    assert boxes(client, small) == [
        *(("resize", f"#{pk} · pending") for pk in members),
        ("rome", f"#{batch} · 2 pending"),
        ("build_page", f"#{small.pk} · blocked"),
        ("announce", f"#{small.pk + 1} · blocked"),
    ]
    large = album.publish_album("oslo", list(range(298)))
    page = client.get(reverse("admin:django_pgqueue_job_workflow", args=[large.pk])).content.decode()
    assert re.findall(r'<text class="pgqueue-box-name"[^>]*>([^<]*)', page) == [
        "resize × 298", "oslo", "build_page", "announce",
    ]  # fmt: skip
