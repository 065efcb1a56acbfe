"""The page of a job: what is shown below its fields, each part from a module of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...models import Job
from ..charts import chart
from ..jobs import texts
from .clone import JobClones
from .drawing import timeline_of
from .errors import shown_errors
from .links import batch_of, shown_links
from .logs import shown_logs
from .own_links import links_of
from .panels import panel_of
from .payload import shown_payload
from .steps import shown_steps
from .task_runs import task_runs

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

__all__ = ["JobPage"]


class JobPage(JobClones):
    """The part of ``JobAdmin`` with the page of a job."""

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        """Add the parts of the page. A job that has none of something costs no query for it."""
        if obj is not None:
            context.update(self.parts_of_page(request, obj))
            if context["pgqueue_runs"] is not None:
                context["media"] += chart.MEDIA
        return super().render_change_form(request, context, add, change, form_url, obj)

    def parts_of_page(self, request: HttpRequest, job: Job) -> dict[str, Any]:
        """Return the context of the page of a job, without arguments for users who may not view them."""
        site, full = self.admin_site, self.has_view_arguments_permission(request)
        worker = partial(self.worker_name, job)
        return {
            "pgqueue_full": full,
            "pgqueue_heading": texts.breakable(str(job)),
            "pgqueue_address": request.build_absolute_uri(self.clone_url("change", job)),
            "pgqueue_clone": self._clone(request, job),
            "pgqueue_timeline": timeline_of(job, worker),
            "pgqueue_own_links": links_of(job) if full else [],
            "pgqueue_panel": panel_of(request, job) if full else "",
            "pgqueue_payload": shown_payload(site, request, job, full=full),
            "pgqueue_batch": batch_of(site, request, job),
            "pgqueue_links": shown_links(site, request, job),
            "pgqueue_steps": shown_steps(job, full=full),
            "pgqueue_runs": task_runs(site, request, job),
            "pgqueue_errors": shown_errors(job, worker),
            "pgqueue_logs": shown_logs(job, request.GET.get("log", "")),
        }

    def _clone(self, request: HttpRequest, job: Any) -> str:
        """Return the URL of the page "Enqueue again", if this user may use it for this job."""
        if job.payload_model is not None or not self.has_clone_permission(request):
            return ""
        return self.clone_url("clone", job)
