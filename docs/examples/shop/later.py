from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django_pgqueue import Snooze, enqueue, task
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt

BERLIN = ZoneInfo("Europe/Berlin")


def send_in_five_minutes(order: Order) -> Job:
    return enqueue(send_receipt.using(run_after=timedelta(minutes=5)), order.pk)


def send_on_new_year(order: Order, year: int) -> Job:
    when = datetime(year, 1, 1, 9, 0, tzinfo=BERLIN)
    return enqueue(send_receipt.using(run_after=when), order.pk)


@task(expires_after=timedelta(hours=2))
def send_code(order_id: int) -> str:
    return "sent"


@task
def wait_for_payment(order_id: int) -> str:
    if not Order.objects.filter(pk=order_id, paid=True).exists():
        raise Snooze(timedelta(minutes=10))
    return "paid"
