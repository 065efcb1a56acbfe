"""The tasks of the payload models. What they have done is in ``DONE``, or in entries of the app ``app``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import connections

from django_pgqueue import Concurrency, JobContext, current_job, task
from tests.app.models import Entry

from .models import Charge, Receipt, Reminder, Visit

DONE: list[str] = []
#: What `send` does in addition, if a test has set it.
HOOKS: dict[str, Callable[[Receipt], None]] = {}


@task(
    payload=Receipt, queue_name="mail", priority=5, max_attempts=3, timeout=60, on_lost="fail",
    expires_after=timedelta(hours=1), metadata={"kind": "receipt"},
)  # fmt: skip
def send(receipt: Receipt) -> str:
    """Send a receipt."""
    for hook in list(HOOKS.values()):
        hook(receipt)
    DONE.append(receipt.email)
    return receipt.email


@task(payload=Reminder, takes_context=True)
async def remind(context: JobContext, reminder: Reminder) -> str:
    """Remind a customer."""
    assert context.attempt == 1
    DONE.append(reminder.email)
    return f"{current_job().pk} {reminder.pk}"


@task(payload=Charge, atomic=True)
def charge(charge: Charge) -> bool:
    """Charge a customer, in a transaction."""
    Charge.objects.filter(pk=charge.pk).update(paid=True)
    Entry.objects.create(key=charge.email)
    return connections["default"].in_atomic_block


@task(payload=Visit, concurrency=Concurrency(1, key="order_id"), group="customer")
def visit(visit: Visit) -> None:
    """Visit a customer."""
    DONE.append(str(visit.customer))
