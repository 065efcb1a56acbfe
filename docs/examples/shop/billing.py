from datetime import timedelta

from django.db import transaction

from django_pgqueue import enqueue, task

from .idempotent import bank
from .models import Order


@task(
    queue_name="billing",
    retry_on=ConnectionError,
    backoff=[10, 20, 40, 80],
    max_attempts=5,
    timeout=60,
)
def charge_order(order_id: int) -> None:
    order = Order.objects.get(pk=order_id)
    bank(order.pk, idempotency_key=f"order-{order.pk}")
    order.paid = True
    order.save()


def check_out(order: Order) -> None:
    with transaction.atomic():
        order.save()
        enqueue(charge_order, order.pk)


def check_out_tomorrow(order: Order) -> None:
    enqueue(charge_order.using(run_after=timedelta(days=1)), order.pk)
