import pytest

from django_pgqueue import enqueue
from django_pgqueue.testing import assert_enqueued, run_jobs

from .models import Receipt
from .orders import place_order
from .tasks import send_receipt


@pytest.mark.django_db
def test_an_order_gets_its_receipt():
    place_order("ann@example.com", 42)
    run_jobs()
    assert Receipt.objects.get().text == "Total: 42"


@pytest.mark.django_db
def test_an_order_gets_its_receipt_at_once(immediate_jobs):
    place_order("ann@example.com", 42)
    assert Receipt.objects.get().text == "Total: 42"


def test_a_receipt_is_enqueued(dummy_jobs):
    enqueue(send_receipt, 7)
    assert_enqueued(send_receipt, args=[7])
    assert [job.args for job in dummy_jobs] == [[7]]


def test_a_worker_sends_the_receipt(pgqueue_worker):
    job = pgqueue_worker.join(place_order("ann@example.com", 42))
    assert job.status == "done", job.errors
    assert Receipt.objects.get().text == "Total: 42"
