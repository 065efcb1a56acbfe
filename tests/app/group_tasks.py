"""Tasks with a group."""

from __future__ import annotations

from django_pgqueue import task

SEEN: list[tuple[str | None, int]] = []


@task(group="tenant")
def serve(tenant: str, number: int) -> None:
    """Note whose job ran."""
    SEEN.append((tenant, number))


@task
def plain(number: int) -> None:
    """The same without a group."""
    SEEN.append((None, number))


@task(group=lambda address: address.split("@")[1])
def by_domain(address: str) -> None:
    """The group is computed."""
