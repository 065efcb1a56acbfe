"""Tasks whose policy SQL follows (test_declared)."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import Concurrency, RateLimit, Unique, task


@task(
    queue_name="mail",
    priority=7,
    max_attempts=3,
    timeout=60,
    expires_after=timedelta(hours=1),
    on_lost="fail",
    metadata={"kind": "receipt"},
)
def send_receipt(order_id: int) -> None:
    """A task with a policy, and without keys."""


@task(concurrency=2)
def one_limit() -> None:
    """All its jobs share a limit."""


@task(rate_limit=RateLimit(5, per=60, key=(), name="api"))
def named_limit() -> None:
    """It shares a limit with others."""


@task(concurrency=Concurrency(1, key="tenant", name="tenants"), group=lambda tenant: f"g-{tenant}")
def keyed(tenant: str) -> None:
    """Its keys are computed from its arguments."""


@task(unique=Unique(key=(), scope="live", window=60, on_conflict="raise"))
def single() -> None:
    """It has a fixed unique key."""


@task(unique=Unique(key="number", on_conflict="earliest"))
def numbered(number: int) -> None:
    """Its unique key is computed from its argument."""
