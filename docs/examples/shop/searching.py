from django_pgqueue import task
from django_pgqueue.models import Job, JobQuerySet


@task(search=["order_id"])
def pack_parcel(order_id: int, express: bool = False) -> str:
    return f"parcel of order {order_id}"


def jobs_of_order(order_id: int) -> JobQuerySet:
    return Job.objects.with_arguments(order_id=order_id)
