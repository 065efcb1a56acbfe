from datetime import timedelta

from django.utils import timezone

from django_pgqueue.models import Job


def what_they_do(minutes: int = 10) -> dict[int, str]:
    """Return the stacks of the jobs that have been running for this long."""
    since = timezone.now() - timedelta(minutes=minutes)
    found = {}
    for job in Job.objects.filter(status="running", last_attempted_at__lt=since):
        try:
            found[job.pk] = job.stack()
        except (ValueError, TimeoutError) as error:  # it has ended, or its worker does not answer
            found[job.pk] = str(error)
    return found
