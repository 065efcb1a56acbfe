from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from django_pgqueue import aenqueue, enqueue
from django_pgqueue.models import Job

from .models import Order
from .tasks import send_receipt


async def place_order(email: str) -> Job:
    order = await Order.objects.acreate(email=email)
    return await aenqueue(send_receipt, order.pk)


@transaction.atomic
def place_order_at_once(email: str) -> Order:
    order = Order.objects.create(email=email)
    enqueue(send_receipt, order.pk)
    return order


async def checkout(request: HttpRequest) -> HttpResponse:
    order = await sync_to_async(place_order_at_once)(request.POST["email"])
    return HttpResponse(f"order {order.pk}", status=201)
