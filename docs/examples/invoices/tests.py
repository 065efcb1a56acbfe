from django.test import TestCase

from django_pgqueue.testing import call_task, run_jobs

from .models import Invoice, Order
from .sending import checkout
from .tasks import SENT, send_invoice


class InvoiceTests(TestCase):
    def test_an_order_sends_an_invoice(self) -> None:
        checkout("ann@example.com", 42)
        run_jobs()
        self.assertEqual(SENT[-1], "ann@example.com: 42 (en)")

    def test_the_text(self) -> None:
        order = Order(email="bob@example.com", total=7)
        call_task(send_invoice, Invoice(order=order))
        self.assertEqual(SENT[-1], "bob@example.com: 7 (en)")
