from collections.abc import Iterable

from django.db import transaction

from django_pgqueue import aenqueue, enqueue, enqueue_many
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt


def place_order(email: str, total: int) -> Job:
    with transaction.atomic():
        order = Order.objects.create(email=email, total=total)
        return enqueue(send_receipt, order.pk)


def import_orders(emails: Iterable[str]) -> list[int]:
    with transaction.atomic():
        orders = Order.objects.bulk_create(Order(email=email) for email in emails)
        return enqueue_many(send_receipt.bind(order.pk) for order in orders)


async def place_order_in_a_view(email: str) -> Job:
    order = await Order.objects.acreate(email=email)
    return await aenqueue(send_receipt, order.pk)
