from celery import shared_task
from django.db import transaction

from .idempotent import bank
from .models import Order


# In the settings: CELERY_TASK_ROUTES = {"shop.celery_tasks.*": {"queue": "billing"}}
@shared_task(
    acks_late=True,
    autoretry_for=(ConnectionError,),
    retry_backoff=10,
    max_retries=4,
    soft_time_limit=60,
)
def charge_order(order_id):
    order = Order.objects.get(pk=order_id)
    bank(order.pk, idempotency_key=f"order-{order.pk}")
    order.paid = True
    order.save()


def check_out(order):
    with transaction.atomic():
        order.save()
        transaction.on_commit(lambda: charge_order.delay(order.pk))


def check_out_tomorrow(order):
    charge_order.apply_async(args=[order.pk], countdown=24 * 60 * 60)
