from django.core.management import call_command
from django.test import TestCase, TransactionTestCase

from django_pgqueue.models import Job

from .models import Order, Receipt
from .orders import place_order
from .tasks import send_receipt


class SendReceiptTests(TestCase):
    def test_the_receipt_shows_the_total(self):
        order = Order.objects.create(email="ann@example.com", total=42)
        send_receipt.call(order.pk)
        self.assertEqual(Receipt.objects.get(order=order).text, "Total: 42")


class PlaceOrderTests(TestCase):
    def test_an_order_enqueues_its_receipt(self):
        place_order("ann@example.com", 42)
        job = Job.objects.get(task_path="shop.tasks.send_receipt")
        self.assertEqual(job.args, [Order.objects.get().pk])
        self.assertEqual((job.queue_name, job.status), ("mail", "pending"))


class ReceiptWorkerTests(TransactionTestCase):
    def test_a_worker_sends_the_receipt(self):
        job = place_order("ann@example.com", 42)
        call_command("runqueueworker", burst=True)
        job.refresh_from_db()
        self.assertEqual(job.status, "done", job.errors)
        self.assertEqual(Receipt.objects.get().text, "Total: 42")
