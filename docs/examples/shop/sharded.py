from django.db import transaction

from django_pgqueue import current_job, enqueue, task
from django_pgqueue.models import Job

from .models import Account


@task(atomic=True)
def charge(account_id: int, amount: int) -> None:
    account = Account.objects.using(current_job().database).select_for_update().get(pk=account_id)
    account.balance -= amount
    account.save()


def place_order(account: Account, amount: int) -> Job:
    """The job is enqueued on the shard of the account, in the transaction there."""
    shard = account._state.db or "default"
    with transaction.atomic(using=shard):
        account.save()
        return enqueue(charge.using(database=shard), account.pk, amount)
