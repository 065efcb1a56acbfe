from django_pgqueue import task

from .models import Order, Receipt


@task(queue_name="mail")
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    text = f"Total: {order.total}"
    # A second run does no harm, because it writes the same receipt again.
    Receipt.objects.update_or_create(order=order, defaults={"text": text})
    return order.email
