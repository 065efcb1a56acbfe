from django_pgqueue import Batch, BatchFinished, chain, current_job, enqueue, task
from django_pgqueue.models import Job

PUBLISHED: list[dict[str, int]] = []
MAILS: list[str] = []


@task(max_attempts=1)
def read_prices(supplier: str) -> dict[str, int]:
    if supplier == "nobody":
        raise LookupError(f"there is no supplier {supplier}")
    return {f"{supplier}-pear": 3, f"{supplier}-plum": 5}


@task
def publish() -> int:
    prices: dict[str, int] = {}
    for found in current_job().parents.results:
        prices |= found
    PUBLISHED.append(prices)
    return len(prices)


@task
def tell_buyer(email: str) -> None:
    parents = current_job().parents
    failed = [job for job in parents.values() if job.status == "failed"]
    MAILS.append(f"{email}: {len(failed)} of {len(parents)} have failed")


def import_prices() -> Job:
    north = enqueue(read_prices, "north")
    south = enqueue(read_prices, "south")
    return enqueue(publish.using(after=[north, south]))


def import_and_tell(supplier: str, email: str) -> list[Job]:
    prices = enqueue(read_prices, supplier)
    return [
        prices,
        enqueue(publish.using(after=prices, if_failed="cancel")),
        enqueue(tell_buyer.using(after=prices, if_failed="run"), email),
    ]


@task
def pick(order_id: int) -> str:
    return f"box for {order_id}"


@task
def pack() -> str:
    (box,) = current_job().parents.results
    return f"packed {box}"


@task
def ship(carrier: str) -> str:
    (parcel,) = current_job().parents.results
    return f"{parcel}, with {carrier}"


def fulfill(order_id: int) -> list[Job]:
    return chain([pick.bind(order_id), pack.bind(), ship.bind("post")])


@task(max_attempts=1)
def send_newsletter(customer_id: int) -> None:
    if customer_id == 13:
        raise ConnectionError("the mail server does not answer")
    MAILS.append(f"newsletter for {customer_id}")


@task
def thank_the_editor() -> None:
    MAILS.append("all have been sent")


@task
def clean_up() -> None:
    (batch,) = current_job().parents.batches.values()
    MAILS.append(f"{batch.name}: {batch.outcome}")


def send_to_all(customers: list[int]) -> Batch:
    with Batch("newsletter") as batch:
        batch.add(send_newsletter.bind(customer) for customer in customers)
        enqueue(thank_the_editor.using(after=batch))
        enqueue(clean_up.using(after=batch, if_failed="run"))
    return batch


@task
def index_category(name: str, depth: int) -> None:
    batch = current_job().batch
    if depth and batch is not None:
        batch.add(index_category.bind(f"{name}/{part}", depth - 1) for part in "ab")


def index_catalog() -> Batch:
    with Batch("catalog") as batch:
        batch.add([index_category.bind("fruit", 2)])
    return batch


def import_lines(lines: list[str]) -> Batch:
    batch = Batch.open("import")
    for line in lines:  # in as many transactions as you like
        enqueue(read_prices.using(batch=batch), line)
    batch.close()
    return batch


def add_late(batch: Batch, supplier: str) -> bool:
    try:
        enqueue(read_prices.using(batch=batch), supplier)
    except BatchFinished:
        return False
    return True
