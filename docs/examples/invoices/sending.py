from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction

from django_pgqueue import JobList, enqueue, enqueue_many

from .models import Invoice, Order
from .tasks import send_invoice


@transaction.atomic
def checkout(email: str, total: int) -> Order:
    order = Order.objects.create(email=email, total=total)
    Invoice.objects.create(order=order)
    return order


def remind(order: Order) -> int:
    later = send_invoice.using(priority=-10, run_after=timedelta(days=14))
    return enqueue(later, Invoice(order=order, language="de")).pk


def send_all(orders: Iterable[Order]) -> JobList:
    return enqueue_many(send_invoice.bind(Invoice(order=order)) for order in orders)
