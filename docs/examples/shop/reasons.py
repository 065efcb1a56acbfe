from datetime import timedelta

from django.utils import timezone

from django_pgqueue import Reason, why
from django_pgqueue.models import Job


def late_jobs(most: int = 20) -> list[Reason]:
    """Return why those jobs wait that have been due for an hour."""
    an_hour_ago = timezone.now() - timedelta(hours=1)
    waiting = Job.objects.filter(shelf=0, run_after__lt=an_hour_ago).exclude(status="running")
    return [why(job) for job in waiting.order_by("run_after")[:most]]


def report() -> str:
    """Return a line for each of them, for a message to the people on call."""
    return "\n".join(f"job {reason.job_id}: {reason.text} {reason.fix}".rstrip() for reason in late_jobs())
