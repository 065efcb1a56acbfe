from django_pgqueue import current_job, task

CHARGED: dict[str, int] = {}


def bank(order_id: int, idempotency_key: str) -> None:
    """Stands for a bank. A second call with the same key changes nothing."""
    CHARGED.setdefault(idempotency_key, order_id)


@task
def charge_card(order_id: int) -> None:
    bank(order_id, idempotency_key=f"shop-job-{current_job().id}")


@task(on_lost="fail", max_attempts=1)
def send_newsletter(issue: int) -> None:
    print(f"issue {issue} is sent to everybody")
