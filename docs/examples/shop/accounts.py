from django_pgqueue import current_job, enqueue, task
from django_pgqueue.context import current_tenant, for_tenant
from django_pgqueue.models import Job


@task(unique=True)
def rebuild_catalog() -> str:
    """One job of each tenant waits at most."""
    return f"the catalog of {current_job().tenant}"


@task
def import_products() -> None:
    enqueue(rebuild_catalog)  # with the tenant of this job


def import_for(tenant: str) -> Job:
    return enqueue(import_products.using(tenant=tenant))


def rebuild_all(tenants: list[str]) -> list[int]:
    ids = []
    for tenant in tenants:
        with for_tenant(tenant):  # all jobs of the block
            assert current_tenant() == tenant
            ids.append(enqueue(rebuild_catalog).pk)
    return ids


def count_failed(tenant: str) -> int:
    return Job.objects.filter(tenant=tenant, status=Job.Status.FAILED).count()
