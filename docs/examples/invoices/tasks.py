from django_pgqueue import task

from .models import Invoice

SENT: list[str] = []


def mail(address: str, text: str) -> None:
    """Stands for a request to another system."""
    if "@" not in address:
        raise ValueError(address)
    SENT.append(f"{address}: {text}")


@task(payload=Invoice, queue_name="mail", max_attempts=8)
def send_invoice(invoice: Invoice) -> None:
    mail(invoice.order.email, f"{invoice.order.total} ({invoice.language})")
