"""The drawing of the example workflow in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgqueue.models import Job
from tests.admin.helpers import drawing_of

from .shop import example, in_shop


def boxes(client: Client, page: str, job: Job) -> list[tuple[str, str]]:
    shown = client.get(reverse(f"admin:django_pgqueue_job_{page}", args=[job.pk])).content.decode()
    return [(node["label"], node["text"]) for node in drawing_of(shown)["nodes"]]


@in_shop
def test_an_album_is_drawn_one_by_one_or_folded(client: Client, shop: Any) -> None:
    client.force_login(User.objects.create_superuser("root"))
    album = example("album")
    small = album.publish_album("rome", [1, 2])
    batch = small.parent_ids[0]
    members = Job.objects.filter(batch_id=batch).order_by("pk").values_list("pk", flat=True)
    assert boxes(client, "change", small) == [
        *(("resize", f"#{pk} · pending") for pk in members),
        ("rome", f"#{batch} · 2 pending"),
        ("build_page", f"#{small.pk} · blocked"),
        ("announce", f"#{small.pk + 1} · blocked"),
    ]
    large = album.publish_album("oslo", list(range(298)))
    assert [name for name, _state in boxes(client, "workflow", large)] == [
        "resize × 298", "oslo", "build_page", "announce",
    ]  # fmt: skip
