from datetime import timedelta

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt

# A variant of a task. Create it once and use it often.
reminder = send_receipt.using(
    run_after=timedelta(days=1),
    priority=-10,
    metadata={"why": "reminder"},
)


def enqueue_urgently(order: Order) -> Job:
    return enqueue(send_receipt.using(priority=50, queue_name="urgent"), order.pk)


def remind(order: Order) -> Job:
    return enqueue(reminder.using(metadata={"source": "shop"}), order.pk)
