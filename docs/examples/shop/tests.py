from unittest import mock

from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_pgqueue import enqueue
from django_pgqueue.testing import (
    assert_enqueued,
    assert_not_enqueued,
    call_task,
    dummy_jobs,
    enqueued,
    fake_job,
    immediate_jobs,
    run_jobs,
    running_worker,
    travel,
)
from django_pgqueue.testing.factories import JobFactory

from .models import DailyReport, Order, Receipt
from .orders import place_order
from .retrying import charge, poll_delivery
from .schedules import build_daily_report
from .tasks import send_receipt


class SendReceiptTests(TestCase):
    def test_the_receipt_shows_the_total(self):
        order = Order.objects.create(email="ann@example.com", total=42)
        self.assertEqual(call_task(send_receipt, order.pk), "ann@example.com")
        self.assertEqual(Receipt.objects.get(order=order).text, "Total: 42")


class DeliveryTests(TestCase):
    def test_the_second_attempt_gives_up(self):
        order = Order.objects.create(email="ann@example.com", total=42)
        with fake_job(attempts=2):
            call_task(poll_delivery, order.pk, 200)
        order.refresh_from_db()
        self.assertTrue(order.paid)


class PlaceOrderTests(TestCase):
    def test_an_order_enqueues_its_receipt(self):
        place_order("ann@example.com", 42)
        assert_enqueued(send_receipt.bind(Order.objects.get().pk), queue_name="mail")
        assert_not_enqueued(charge)

    def test_two_orders_are_two_jobs(self):
        with enqueued() as jobs:
            place_order("ann@example.com", 42)
            place_order("bob@example.com", 7)
        self.assertEqual(len(jobs), 2)

    def test_an_order_gets_its_receipt(self):
        place_order("ann@example.com", 42)
        run_jobs()
        self.assertEqual(Receipt.objects.get().text, "Total: 42")


class ChargeTests(TestCase):
    def test_a_charge_is_tried_again(self):
        order = Order.objects.create(email="ann@example.com", total=42)
        enqueue(charge, order.pk)
        with mock.patch("shop.retrying.bank_pays", side_effect=[TimeoutError, True]):
            (first,) = run_jobs(raise_failures=False)
            self.assertEqual((first.outcome, type(first.error)), ("retry", TimeoutError))
            travel(seconds=10)
            (second,) = run_jobs()
        self.assertEqual((second.outcome, second.attempt), ("done", 2))


class ReportTests(TestCase):
    def test_the_report_is_built_every_night(self):
        travel(days=1)
        run_jobs(schedules=True, queues="reports")
        assert_enqueued(build_daily_report, status="done", count=1)
        self.assertTrue(DailyReport.objects.exists())


@immediate_jobs()
class CheckoutTests(TestCase):
    def test_an_order_gets_its_receipt_at_once(self):
        job = place_order("ann@example.com", 42)
        self.assertEqual(Receipt.objects.get().text, "Total: 42")
        job.refresh_from_db()
        self.assertEqual(job.status, "done")


class WithoutDatabaseTests(SimpleTestCase):
    @dummy_jobs()
    def test_a_receipt_is_enqueued(self):
        enqueue(send_receipt, 7)
        assert_enqueued(send_receipt, args=[7], count=1)


class FailedJobTests(TestCase):
    def test_a_failed_receipt_can_be_sent_again(self):
        order = Order.objects.create(email="ann@example.com", total=42)
        job = JobFactory(task=send_receipt, args=[order.pk], failed=True)
        job.retry()
        run_jobs()
        self.assertTrue(Receipt.objects.filter(order=order).exists())


class ReceiptWorkerTests(TransactionTestCase):
    def test_a_worker_sends_the_receipt(self):
        with running_worker() as worker:
            job = worker.join(place_order("ann@example.com", 42))
        self.assertEqual(job.status, "done", job.errors)
        self.assertEqual(Receipt.objects.get().text, "Total: 42")
