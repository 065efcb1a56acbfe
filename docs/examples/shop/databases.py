from django.db import transaction

from django_pgqueue import enqueue, task
from django_pgqueue.models import Job

from .tasks import send_receipt


@task(database="other")
def count_events(day: str) -> str:
    return day


def enqueue_beside_other_rows(order_id: int) -> Job:
    with transaction.atomic(using="other"):
        return enqueue(send_receipt.using(database="other"), order_id)


def failed_in_the_other_database() -> int:
    return Job.objects.using("other").filter(status="failed").count()
