from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from django_pgqueue.models import Job


def report_progress(request: HttpRequest, job_id: int) -> JsonResponse:
    """For a page that asks every other second. Check whose job it is."""
    job = get_object_or_404(Job.objects.select_related("live_progress"), pk=job_id)
    progress = job.progress
    return JsonResponse(
        {
            "status": job.status,
            "fraction": progress and progress.fraction,
            "note": progress.note if progress else "",
        }
    )
