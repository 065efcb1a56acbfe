from datetime import timedelta

from django_pgqueue import pause, resume

from .tasks import send_receipt


def provider_is_down() -> None:
    """No mail for two hours, or until a user resumes it."""
    pause(queue="mail", reason="the provider is down", author="ann", duration=timedelta(hours=2))


def provider_is_back() -> bool:
    return resume(queue="mail")


def hold_the_task() -> None:
    pause(task=send_receipt, reason="wrong amounts")  # also: task="shop.tasks.send_receipt"
