from shop.tasks import send_receipt

from django_pgqueue import enqueue

job = enqueue(send_receipt, 0)  # there is no order 0
