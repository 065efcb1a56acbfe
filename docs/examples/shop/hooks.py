from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_pgqueue import BoundTask, CancelJob, CurrentJob, enqueue, task

tenant: ContextVar[str] = ContextVar("tenant", default="")
CLOSED = {"globex"}


def note_tenant(call: BoundTask) -> BoundTask | None:
    """Each call has the tenant of the code that enqueues it."""
    if not tenant.get():
        return None
    return call.using(metadata={"tenant": tenant.get()})


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
    """Enqueue for a tenant. A request sets it in a middleware."""
    token = tenant.set(name)
    try:
        return enqueue(count_orders).pk
    finally:
        tenant.reset(token)
