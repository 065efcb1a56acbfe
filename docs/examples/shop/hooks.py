from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_pgqueue import CancelJob, CurrentJob, enqueue, task

tenant: ContextVar[str] = ContextVar("tenant", default="")
CLOSED = {"globex"}


@contextmanager
def tenant_of_job(job: CurrentJob) -> Iterator[None]:
    """Each attempt works for the tenant of its job."""
    name = job.metadata.get("tenant", "")
    if name in CLOSED:
        raise CancelJob(f"{name} has left")
    token = tenant.set(name)
    try:
        yield
    finally:
        tenant.reset(token)


@task
def count_orders() -> str:
    return f"the orders of {tenant.get()}"


def count_for(name: str) -> int:
    return enqueue(count_orders.using(metadata={"tenant": name})).pk
