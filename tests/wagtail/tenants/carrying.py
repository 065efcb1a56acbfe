"""Let tasks run in the schema of who has enqueued them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.db import connections
from django_tenants.utils import schema_context

P = ParamSpec("P")
R = TypeVar("R")

schema: ContextVar[str] = ContextVar("schema")


def remember(connection: Any, tenant: Any) -> None:
    """django-tenants calls this whenever it changes the schema, and when it makes a connection."""
    if connection in connections.all(initialized_only=True):
        schema.set(tenant.schema_name)


def in_tenant(function: Callable[P, R]) -> Callable[P, R]:
    """Run a task in the schema in which it was enqueued."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with schema_context(schema.get("public")):
            return function(*args, **kwargs)

    return inner
