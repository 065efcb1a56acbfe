from collections.abc import Iterable

from django.db import transaction

from django_pgqueue import JobList, enqueue_many

from .models import Order
from .tasks import send_receipt


def import_orders(emails: Iterable[str]) -> JobList:
    with transaction.atomic():
        orders = Order.objects.bulk_create(Order(email=email) for email in emails)
        return enqueue_many(send_receipt.bind(order.pk) for order in orders)
