from datetime import timedelta

from django_pgqueue import Batch, JobExists, Unique, enqueue, enqueue_many, task
from django_pgqueue.models import Job

from .models import Order


@task(unique=Unique(key="order_id"))
def index_order(order_id: int, reason: str = "") -> int:
    # It reads the order as it is now, so one run covers all changes until its start.
    return Order.objects.get(pk=order_id).total


@task(unique=Unique(scope="live"))
def sync_warehouse(warehouse: str) -> str:
    return warehouse


@task(unique=Unique(window=timedelta(hours=1)))
def remind_customer(order_id: int) -> str:
    return "sent"


@task(unique=Unique(key="order_id", on_conflict="replace"))
def notify_customer(order_id: int, message: str) -> str:
    return message


@task(unique=Unique(key=lambda email, **_: email.lower(), on_conflict="raise"))
def close_account(email: str, reason: str = "") -> str:
    return "closed"


def order_changed(order: Order) -> str:
    job = enqueue(index_order, order.pk, reason="changed")
    return f"job {job.pk}: {job.enqueue_outcome}"


def prices_changed(orders: list[Order]) -> int:
    jobs = enqueue_many(index_order.bind(order.pk) for order in orders)
    return jobs.enqueue_outcomes.count("created")


def debounced(order: Order, message: str) -> Job:
    later = notify_customer.using(run_after=timedelta(minutes=5))
    return enqueue(later, order.pk, message)


def rebuild(part: str) -> Job:
    return enqueue(sync_warehouse.using(unique_key="rebuild"), part)


def ask_to_close(email: str) -> str:
    try:
        enqueue(close_account, email)
    except JobExists as error:
        return f"job {error.job_id} is about to close it already"
    return "it will be closed"


def index_all(orders: list[Order]) -> Batch:
    with Batch("index") as batch:
        # An order that is indexed soon anyway joins the batch.
        batch.add(index_order.bind(order.pk) for order in orders)
    return batch
