from django_pgqueue import enqueue, shard_for, task


@task(spread=True)
def resize(path: str) -> None:
    print("resized", path)


@task(spread="customer")
def invoice(customer: str, month: str) -> str:
    return f"{customer} {month}"


def end_of_month(customers: list[str], month: str) -> None:
    for customer in customers:
        enqueue(invoice, customer, month)  # on shard_for(customer)


def where(customer: str) -> str:
    return shard_for(customer)
