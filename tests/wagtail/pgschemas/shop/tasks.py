"""Tasks that read the tables of a tenant."""

from __future__ import annotations

from django_pgqueue import enqueue, task

from .models import Order


@task(max_attempts=1)
def read() -> list[str]:
    return list(Order.objects.order_by("pk").values_list("email", flat=True))


@task(max_attempts=1)
async def read_async() -> list[str]:
    return [email async for email in Order.objects.order_by("pk").values_list("email", flat=True)]


@task(max_attempts=1, atomic=True)
def add_and_enqueue() -> int:
    Order.objects.create(email="task@example.com")
    return enqueue(read).pk


@task(max_attempts=1, atomic=True)
def add_and_fail() -> None:
    Order.objects.create(email="lost@example.com")
    raise LookupError
