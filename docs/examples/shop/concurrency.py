from django_pgqueue import Concurrency, enqueue, reset_limit, set_limit, task

SHIPPED: list[int] = []


@task(concurrency=2)
def make_thumbnails(image_id: int) -> None:
    """At most two of these jobs run at once, on all workers together."""


@task(concurrency=Concurrency(1, key="order_id"))
def ship(order_id: int, parcel: int) -> None:
    """The parcels of an order are shipped one after the other, in the order of their enqueue."""
    SHIPPED.append(parcel)


def api_account(customer: str, page: int = 1) -> str:
    return customer.split("@")[-1]


@task(concurrency=Concurrency(3, key=api_account, name="crm-requests"))
def fetch_customer(customer: str, page: int = 1) -> None:
    """Three requests at once to the account of each company, together with update_customer."""


@task(concurrency=Concurrency(3, key=api_account, name="crm-requests"))
def update_customer(customer: str, page: int = 1) -> None: ...


@task(concurrency=Concurrency(1, key="report", on_full="cancel_new"))
def refresh(report: str) -> None:
    """A refresh that finds another one of the same report running is cancelled."""


def enqueue_some(order_id: int) -> None:
    for parcel in (1, 2, 3):
        enqueue(ship, order_id, parcel)
    enqueue(make_thumbnails.using(limit_key="big images"), 7)


def change_limits() -> None:
    set_limit(task=make_thumbnails, concurrency=8)  # or its path, "shop.concurrency.make_thumbnails"
    set_limit(name="crm-requests", concurrency=1)
    set_limit(queue="mail", concurrency=20)
    set_limit(everything=True, concurrency=100)
    reset_limit(name="crm-requests")  # as the code declares it
