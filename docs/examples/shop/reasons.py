from datetime import timedelta

from django.utils import timezone

from django_pgqueue import Why, explain
from django_pgqueue.models import Job


def late_jobs(most: int = 20) -> list[Why]:
    """Return why those jobs wait that have been due for an hour."""
    an_hour_ago = timezone.now() - timedelta(hours=1)
    waiting = Job.objects.filter(shelf=0, run_after__lt=an_hour_ago).exclude(status="running")
    return [explain(job) for job in waiting.order_by("run_after")[:most]]


def report() -> str:
    """Return a line for each of them, for a message to the people on call."""
    return "\n".join(f"job {why.job_id}: {why.text} {why.cure}".rstrip() for why in late_jobs())
