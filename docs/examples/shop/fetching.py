import asyncio

from django_pgqueue import current_job, task

from .models import Order


@task(queue_name="fetch")
async def fetch_rates(order_id: int) -> str:
    await asyncio.sleep(0)  # stands for a call over the network
    await Order.objects.filter(pk=order_id).aupdate(paid=True)
    return f"job {current_job().pk}"


@task(queue_name="fetch")
async def listen(seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("asked to stop: clean up, then let the exception pass")
        raise
    return "heard nothing"
