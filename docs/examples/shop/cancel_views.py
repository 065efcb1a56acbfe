# shop/cancel_views.py
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from django_pgqueue.models import Job


@require_POST
def cancel_own(request: HttpRequest, pk: int) -> JsonResponse:
    """The user may cancel the jobs of the tenant that has his or her user name, and finds no others."""
    tenant = request.user.get_username()
    job = get_object_or_404(Job.objects.using("staff"), pk=pk, tenant=tenant)
    return JsonResponse({"cancelled": bool(job.cancel())})
