from time import monotonic, sleep

from django_pgqueue.models import Job


def wait_for(job: Job, seconds: float) -> bool:
    """For scripts. The transaction that enqueued the job must have committed."""
    deadline = monotonic() + seconds
    while not job.is_over and monotonic() < deadline:
        sleep(0.1)
        job.refresh_from_db()
    return job.is_over
