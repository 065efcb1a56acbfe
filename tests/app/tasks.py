"""Tasks that the tests enqueue."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue import task


@task
def noop(*args: object, **kwargs: object) -> None:
    """Accept any arguments and do nothing."""


@task(queue_name="mail", priority=10, max_attempts=3, timeout=60, on_lost="fail", metadata={"of": "mail"})
def mail(number: int) -> int:
    """A task with a policy."""
    return number


@task(expires_after=timedelta(hours=2))
def short_lived() -> None:
    """A task whose jobs expire after two hours."""


@task(database="other")
def elsewhere(number: int) -> int:
    """A task whose jobs are in the other database."""
    return number


@task(search=("order_id", "customer"))
def searched(order_id: object, customer: object = "") -> None:
    """Do nothing. Its jobs are found by their arguments."""
