from datetime import timedelta

from django_pgqueue import EventTimeout, current_job, send_event, step, task

from .models import Account, Order, Receipt

SHIPPED: list[int] = []


def render(order_id: int, *, language: str) -> str:
    """Stands for a computation that takes minutes."""
    order = Order.objects.get(pk=order_id)
    return f"{order.email}: {order.total} ({language})"


def charge(account_id: int, amount: int) -> int:
    account = Account.objects.select_for_update().get(pk=account_id)
    account.balance -= amount
    account.save()
    return account.balance


def ship(order_id: int) -> str:
    """Stands for a request to another system."""
    SHIPPED.append(order_id)
    return f"parcel {len(SHIPPED)}"


@task
def fulfill(order_id: int, account_id: int) -> str:
    job = current_job()
    text = job.step("render", render, order_id, language="en")
    job.atomic_step("charge", charge, account_id, 42)
    parcel = job.step("ship", ship, order_id)
    job.sleep("settle", timedelta(hours=2))
    Receipt.objects.get_or_create(order_id=order_id, defaults={"text": text})
    return parcel


@task
def refund(order_id: int) -> str:
    job = current_job()
    try:
        answer = job.receive_event("decided", timeout=timedelta(days=3))
    except EventTimeout:
        return "nobody has decided"
    return f"{answer['by']} says {answer['decision']}"


def decide(job_id: int, user: str, decision: str) -> bool:
    """Called by a view."""
    return send_event(job_id, "decided", {"by": user, "decision": decision})


@step
def fetch(page: int) -> list[int]:
    return [10 * page + n for n in range(3)]


@step(atomic=True)
def store(numbers: list[int]) -> int:
    for number in numbers:
        Order.objects.create(email=f"{number}@example.com")
    return len(numbers)


@task
def import_pages(pages: int) -> int:
    total = 0
    for page in range(pages):
        numbers = fetch.named(f"fetch-{page}")(page)
        total += store.named(f"store-{page}")(numbers)
    return total
