from django_pgqueue import aenqueue
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt


async def place_order(email: str) -> Job:
    order = await Order.objects.acreate(email=email)
    return await aenqueue(send_receipt, order.pk)
