from django.db import transaction

from django_pgqueue import enqueue, task

from .models import Order


@task(queue_name="mail", max_attempts=5, timeout=300)
def send_receipt(order_id: int) -> None: ...


def place_order(email: str) -> None:
    with transaction.atomic():
        order = Order.objects.create(email=email)
        enqueue(send_receipt, order.pk)  # the job exists if, and only if, the order does
