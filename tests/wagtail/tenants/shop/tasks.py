"""Tasks that read the tables of a tenant."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import connection
from django_tenants.utils import schema_context

from django_pgqueue import current_job, enqueue, task

from ..by_tenant import in_schema
from ..carrying import in_tenant
from .models import Order


def emails() -> list[str]:
    """Return the current schema, and the emails of the orders in it."""
    schema: str = connection.schema_name  # type: ignore[attr-defined]
    return [schema, *Order.objects.order_by("pk").values_list("email", flat=True)]


@task
@in_tenant
def read_carried() -> list[str]:
    return emails()


@task
async def read_async() -> list[str]:
    return await sync_to_async(in_tenant(emails))()


@task
def read_named(schema: str) -> list[str]:
    with schema_context(schema):
        return emails()


@task(max_attempts=1)
def read_nothing() -> list[str]:
    return emails()


@task(atomic=True)
@in_tenant
def add_and_enqueue() -> int:
    Order.objects.create(email="task@example.com")
    return enqueue(read_carried).pk


@task(max_attempts=1, atomic=True)
@in_tenant
def add_and_fail() -> None:
    Order.objects.create(email="lost@example.com")
    raise LookupError


@task
def set_schema(name: str, sends: bool) -> None:
    connection.set_schema(name)  # type: ignore[attr-defined]
    if sends:
        emails()


@task
async def read_async_of_tenant() -> list[str]:
    def read() -> list[str]:
        with in_schema(current_job()):
            return emails()

    return await sync_to_async(read)()


@task(max_attempts=1)
def fail_in_schema() -> None:
    raise LookupError(emails()[0])
