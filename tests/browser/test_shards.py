"""The pages of several shards, one of which is down: they fit, and can be used by everybody. What they show:
`tests.admin.test_shards`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from example_project.demo.shop.seed import seed
from tests.support.databases import sharded

from .hands import address
from .test_pages import look_again_on_a_phone, look_at

if TYPE_CHECKING:
    from pytest_django.plugin import DjangoDbBlocker

    from .conftest import Open

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def _shards(console: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        seed("other", 2_000)
        with sharded("down"):
            yield


@pytest.mark.parametrize(
    ("name", "query"),
    [
        *((f"{name}_changelist", "") for name in ("job", "queue", "worker", "limit")),
        ("job_overview", ""), ("job_failures", ""), ("jobstat_changelist", ""),
        ("queue_changelist", "?shard=other"),
    ],
)  # fmt: skip
def test_the_pages_of_shards(name: str, query: str, window: Open) -> None:
    page = window("dark")
    look_at(page, f"{address(name)}{query}")
    assert page.locator(".pgqueue-shards a").count() >= 3
    look_again_on_a_phone(page)
