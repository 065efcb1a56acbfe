"""Two tenants, for the tests with each of the settings here."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def tenants(kept_database: None) -> None:
    """Each has an order."""
    from django_tenants.utils import schema_context

    from .customers.models import Customer
    from .shop.models import Order

    for name in ("acme", "bolt"):
        Customer(schema_name=name, name=name).save(verbosity=0)
        with schema_context(name):
            Order.objects.create(email=f"{name}@example.com")
