from django_pgqueue import drain_worker
from django_pgqueue.models import Worker


def leave_the_host(host: str) -> int:
    """Let all workers of a machine finish their jobs and end. Return how many processes this are."""
    return sum(drain_worker(worker, replace=False) for worker in Worker.objects.filter(host=host))
