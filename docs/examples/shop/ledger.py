from django.db import transaction
from django.db.models import F

from django_pgqueue import enqueue, task

from .models import Account
from .tasks import send_receipt


@task(atomic=True)
def transfer(source: int, target: int, amount: int) -> None:
    """The updates and the completion of the job commit together, or not at all."""
    Account.objects.filter(pk=source).update(balance=F("balance") - amount)
    Account.objects.filter(pk=target).update(balance=F("balance") + amount)


@task(atomic=True)
def settle(account_id: int, order_id: int) -> None:
    Account.objects.filter(pk=account_id).update(balance=0)
    # Part of the transaction. The next job exists if, and only if, this one is done.
    enqueue(send_receipt, order_id)
    # Not part of it. The process may end between the commit and this call.
    transaction.on_commit(lambda: print("account settled:", account_id))
