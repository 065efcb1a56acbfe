from django.db import transaction

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt


def place_order(email: str, total: int) -> Job:
    with transaction.atomic():
        order = Order.objects.create(email=email, total=total)
        return enqueue(send_receipt, order.pk)
