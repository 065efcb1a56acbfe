import pytest
from django.core.management import call_command

from .models import Receipt
from .orders import place_order


@pytest.mark.django_db(transaction=True)
def test_a_worker_sends_the_receipt():
    job = place_order("ann@example.com", 42)
    call_command("runqueueworker", burst=True)
    job.refresh_from_db()
    assert job.status == "done", job.errors
    assert Receipt.objects.get().text == "Total: 42"
