from django_pgqueue import Snooze, task

SENT: list[int] = []


class TooManyRequests(Exception):
    """The other system says when to come back."""

    seconds = 60


def send_to_crm(order_id: int) -> None:
    """Stands for a call to a system that allows one request a minute."""
    if SENT:
        raise TooManyRequests
    SENT.append(order_id)


@task(queue_name="crm")
def sync_order(order_id: int) -> None:
    try:
        send_to_crm(order_id)
    except TooManyRequests as error:
        raise Snooze(error.seconds) from None
