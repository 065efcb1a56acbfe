from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django_q.models import Schedule
from django_q.tasks import async_task, schedule

from .idempotent import bank
from .models import Order


def charge_order(order_id):
    order = Order.objects.get(pk=order_id)
    bank(order.pk, idempotency_key=f"order-{order.pk}")
    order.paid = True
    order.save()
    return order.pk


def check_out(order):
    with transaction.atomic():
        order.save()
        async_task("shop.q2_tasks.charge_order", order.pk, q_options={"timeout": 60})


def check_out_tomorrow(order):
    schedule(
        "shop.q2_tasks.charge_order",
        order.pk,
        schedule_type=Schedule.ONCE,
        next_run=timezone.now() + timedelta(days=1),
    )


def every_night():
    schedule(
        "shop.q2_tasks.build_daily_report",
        name="daily-report",
        schedule_type=Schedule.CRON,
        cron="0 3 * * *",
    )
