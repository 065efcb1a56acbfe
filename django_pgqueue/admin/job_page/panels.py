"""The panel of a task: a template of the project, shown on the page of its jobs.

The template ``admin/django_pgqueue/job/panels/<path of the task>.html`` gets the job, its arguments by name
and its result as they may be shown, and what the context processors add.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ...redaction import names_of_call, redact, redact_call

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ...models import Job

__all__ = ["panel_of"]

FOLDER = "admin/django_pgqueue/job/panels"

_PATH = re.compile(r"\w+(\.\w+)+")

logger = logging.getLogger(__name__)


def panel_of(request: HttpRequest, job: Job) -> str:
    """Return the panel of a job; empty if its task has none. A panel that fails does not hide the page."""
    if not _PATH.fullmatch(job.task_path):  # any text may be enqueued with SQL
        return ""
    try:
        template = get_template(f"{FOLDER}/{job.task_path}.html")
    except TemplateDoesNotExist:
        return ""
    except Exception:  # a syntax error
        return _failed(job)
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    names = names_of_call(job.task_path)
    named = {names.at(place): value for place, value in enumerate(args) if place < len(names.each)}
    context: dict[str, Any] = {
        "job": job,
        "arguments": {**named, **kwargs},
        "result": redact(job.result, job.task_path),
    }
    try:
        return template.render(context, request)
    except Exception:  # whatever the template calls
        return _failed(job)


def _failed(job: Job) -> str:
    logger.warning("The panel of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
    return format_html("<p>{}</p>", _("The panel of this task failed; see the log."))
