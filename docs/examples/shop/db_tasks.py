from datetime import timedelta

from django.db import transaction
from django.tasks import task
from django.utils import timezone

from .idempotent import bank
from .models import Order


@task(queue_name="billing")
def charge_order(order_id):
    order = Order.objects.get(pk=order_id)
    bank(order.pk, idempotency_key=f"order-{order.pk}")
    order.paid = True
    order.save()
    return order.pk


def check_out(order):
    with transaction.atomic():
        order.save()
        return charge_order.enqueue(order.pk)


def check_out_tomorrow(order):
    tomorrow = timezone.now() + timedelta(days=1)
    return charge_order.using(run_after=tomorrow).enqueue(order.pk)
