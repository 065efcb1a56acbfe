"""The unique key of a job on its page: until when it holds, and which other job has it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections
from django.db.models.functions import Now
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from ...models import UniqueWindow
from ...models.job import UniqueScope
from .. import display
from ..jobs import texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import Job

__all__ = ["summary"]


def summary(job: Job, link: Callable[[int, str], str]) -> str:
    """Return the key with what there is to say about it. `link` makes a link to a job, with its text."""
    alias = str(job._state.db)
    notes = [_scope(job)]
    window = UniqueWindow.objects.using(alias).filter(pk=job.unique_key, until__gt=Now()).first()
    if window is not None:
        notes.append(format_html(_("taken until {} by its window"), display.time(window.until)))
    twin = _twin(job, alias)
    if twin is not None and twin != job.pk:
        notes.append(format_html(_("{} has the key now"), link(twin, _("job %(id)s") % {"id": twin})))
    return format_html(
        '<code class="pgqueue-value">{}</code>{}',
        texts.breakable(job.unique_key or ""),
        format_html_join("", '<span class="pgqueue-more">{}</span>', ((note,) for note in notes)),
    )


def _scope(job: Job) -> str:
    if job.unique_scope == UniqueScope.LIVE:
        return _("no other job with this key until this one is over")
    return _("no other job with this key while this one waits")


def _twin(job: Job, alias: str) -> int | None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pgqueue_twin_v1(%s, %s)", [job.unique_key, job.unique_scope])
        twin: int | None = cursor.fetchone()[0]
    return twin
