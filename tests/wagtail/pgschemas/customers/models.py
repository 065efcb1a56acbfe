"""The tenants."""

from __future__ import annotations

from django_pgschemas.models import TenantModel


class Customer(TenantModel):  # type: ignore[misc]
    auto_drop_schema = True
