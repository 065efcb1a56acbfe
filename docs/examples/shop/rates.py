from datetime import timedelta

from django_pgqueue import Concurrency, RateLimit, RateLimiter, enqueue, reset_limit, set_limit, task

MINUTE = timedelta(minutes=1)


@task(rate_limit=RateLimit(600, per=MINUTE))
def send_newsletter(customer_id: int) -> None:
    """Ten of these jobs start in a second, at equal intervals, on all workers together."""


@task(rate_limit=RateLimit(100, per=MINUTE, burst=10, key="tenant", name="crm"))
def sync_customer(tenant: str, customer_id: int) -> None:
    """100 in a minute for each tenant, of which 10 may start at once after a quiet time."""


@task(
    concurrency=Concurrency(2, key="printer"),
    rate_limit=RateLimit(30, per=MINUTE, key="printer"),
)
def print_label(printer: str, order_id: int) -> None:
    """Two at once on each printer, and no more than 30 in a minute."""


def enqueue_some() -> None:
    for customer_id in range(12):
        enqueue(sync_customer, "acme", customer_id)


def search_crm(tenant: str, words: str) -> str:
    """Application code uses the same starts as the jobs of the tenant."""
    limit = RateLimiter("crm", tenant)
    if not limit.take():
        return f"Try again in {limit.seconds_until():.0f} seconds."
    return f"Found {words}."


def change_rates() -> None:
    set_limit(name="crm", rate_limit=RateLimit(50, per=MINUTE, burst=5))
    set_limit(queue="mail", rate_limit=RateLimit(1000, per=MINUTE, burst=50))
    set_limit(everything=True, rate_limit=RateLimit(500, per=timedelta(seconds=1), burst=100))
    reset_limit(name="crm")  # as the code declares it
