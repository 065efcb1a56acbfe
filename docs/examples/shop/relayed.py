from django.db import transaction

from django_pgqueue import cancel, enqueue
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt


def pay(order_id: int) -> Job:
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(paid=True)
        return enqueue(send_receipt.using(relay="other"), order_id)


def job_there(hand_over: Job) -> Job | None:
    hand_over.refresh_from_db()
    if hand_over.result is None:  # not handed over yet
        return None
    return send_receipt.get_result(str(hand_over.result)).job


def stop(hand_over: Job) -> int:
    return cancel(hand_over)  # the hand-over, or the job that the call has become
