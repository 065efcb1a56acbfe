from contextlib import suppress

from django.db import transaction
from procrastinate import RetryStrategy
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued

from .idempotent import bank
from .models import Order


@app.task(
    queue="billing",
    retry=RetryStrategy(max_attempts=4, wait=10, retry_exceptions={ConnectionError}),
)
def charge_order(order_id):
    order = Order.objects.get(pk=order_id)
    bank(order.pk, idempotency_key=f"order-{order.pk}")
    order.paid = True
    order.save()
    return order.pk


def check_out(order):
    with transaction.atomic():
        order.save()
        charge_order.defer(order_id=order.pk)


def check_out_tomorrow(order):
    charge_order.configure(schedule_in={"days": 1}).defer(order_id=order.pk)


@app.task
def index_order(order_id):
    return Order.objects.get(pk=order_id).total


def order_changed(order):
    with suppress(AlreadyEnqueued):
        index_order.configure(queueing_lock=f"index-{order.pk}").defer(order_id=order.pk)


@app.periodic(cron="0 3 * * *")
@app.task(queue="reports")
def build_daily_report(timestamp): ...
