import asyncio

from asgiref.sync import sync_to_async
from django.db import transaction

from django_pgqueue import current_job, task

from .models import Order


@task(queue_name="fetch")
async def fetch_rates(order_id: int) -> str:
    await asyncio.sleep(0)  # stands for a call over the network
    await Order.objects.filter(pk=order_id).aupdate(paid=True)
    return f"job {current_job().pk}"


@transaction.atomic
def settle(order_id: int) -> bool:
    order = Order.objects.select_for_update().get(pk=order_id)
    was_open = not order.paid
    order.paid = True
    order.save()
    return was_open


@task(queue_name="fetch")
async def fetch_and_settle(order_id: int) -> bool:
    await asyncio.sleep(0)  # stands for a call over the network
    return await sync_to_async(settle)(order_id)


@task(queue_name="fetch")
async def listen(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("asked to stop: clean up, then let the exception pass")
        raise
    return "heard nothing"
