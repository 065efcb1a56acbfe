"""Tasks with limits, and with groups."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import Concurrency, RateLimit, task

from .worker_tasks import SEEN, hold


@task(concurrency=2)
def two(name: str) -> None:
    _run(name)


@task(concurrency=Concurrency(1, key="order_id"))
def ship(order_id: int, name: str = "") -> None:
    _run(name)


@task(concurrency=Concurrency(1, key="region"))
def report(*, region: str | None = "all", name: str = "") -> None:
    _run(name)


@task(concurrency=Concurrency(1, key=lambda tenant, name="": tenant.split(".")[0], name="tenant"))
def sync(tenant: str, name: str = "") -> None:
    _run(name)


@task(concurrency=Concurrency(1, key="key", on_full="cancel_new"))
def refresh(key: str, name: str = "") -> None:
    _run(name)


@task(concurrency=Concurrency(1, key="key", on_full="cancel_old"))
def build(key: str, name: str = "") -> None:
    _run(name)


@task(rate_limit=RateLimit(1, per=timedelta(hours=1), burst=2))
def hourly(name: str) -> None:
    _run(name)


@task(rate_limit=RateLimit(20, per=timedelta(seconds=1), key="tenant", name="quick"))
def quick(tenant: int, name: str = "") -> None:
    _run(name)


def _run(name: str) -> None:
    """Record that it runs. Wait for the test if the name begins with ``hold``."""
    SEEN.append(name)
    if name.startswith("hold"):
        hold.func(name)


SERVED: list[tuple[str | None, int]] = []


@task(group="tenant")
def serve(tenant: str, number: int) -> None:
    """Note whose job ran."""
    SERVED.append((tenant, number))


@task
def plain(number: int) -> None:
    """The same without a group."""
    SERVED.append((None, number))


@task(group=lambda address: address.split("@")[1])
def by_domain(address: str) -> None:
    """The group is computed."""


@task(concurrency=Concurrency(5, key="tenant"))
def by_tenant(number: int, tenant: str = "") -> None:
    """Do nothing. Each tenant has a limit of its own."""
