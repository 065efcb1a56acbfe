"""Fixtures for all tests of payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.receipts import tasks
from tests.receipts.models import Order


@pytest.fixture
def order(db: None) -> Order:
    return Order.objects.create(total=5)


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    tasks.DONE.clear()
    yield
    tasks.HOOKS.clear()


class NoReceipts:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return app_label != "receipts"


@pytest.fixture
def without_table(settings: Any) -> None:
    """The database routers keep the tables of payloads out."""
    settings.DATABASE_ROUTERS = [NoReceipts()]
