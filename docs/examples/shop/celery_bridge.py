from celery import shared_task

from django_pgqueue import enqueue

from .billing import charge_order


@shared_task(name="shop.celery_tasks.charge_order", acks_late=True)
def pass_on(order_id):
    """Move a call that is still in the broker to the new queue."""
    enqueue(charge_order, order_id)
