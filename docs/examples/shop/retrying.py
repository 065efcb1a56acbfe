import random
from typing import Any

from django_pgqueue import CancelJob, RetryLater, current_job, task

from .models import Order


class Busy(Exception):
    """The bank asks us to come back later."""

    seconds = 30


class Refused(Exception):
    """The bank says no. It will not change its mind."""


def bank_pays(order_id: int) -> bool:
    """Stands for a call over the network."""
    return Order.objects.filter(pk=order_id, total__gt=0).exists()


# Wait 10 seconds after the first failure, then a minute, then ten minutes each time.
@task(max_attempts=6, backoff=[10, 60, 600], fail_on=Refused)
def charge(order_id: int) -> None:
    if not bank_pays(order_id):
        raise Refused(f"order {order_id} has no total")
    Order.objects.filter(pk=order_id).update(paid=True)


# Retry network errors only.
@task(retry_on=(ConnectionError, TimeoutError))
def notify_warehouse(order_id: int) -> None:
    raise ConnectionError("the warehouse does not answer")


def patient(exc: BaseException, result: Any) -> float | None:
    """Wait as long as the bank asks for, else longer each time. Give up on KeyError."""
    if isinstance(exc, KeyError):
        return None
    if isinstance(exc, Busy):
        return exc.seconds
    return result.attempts * 60 * random.uniform(0.8, 1.2)


@task(backoff=patient)
def ask_bank(question: str) -> str:
    raise {"busy": Busy, "bug": KeyError, "other": OSError}[question](question)


@task
def poll_delivery(order_id: int, answer: int) -> None:
    if answer == 503:
        raise RetryLater(120)  # counts as an attempt
    if answer == 404:
        raise CancelJob("the parcel is unknown")  # cancelled, not failed
    if current_job().attempts > 1:
        Order.objects.filter(pk=order_id).update(paid=True)
