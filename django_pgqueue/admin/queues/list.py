"""The list of queues: every queue that is in use or paused, with or without its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import InvalidPage
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ...figures.queues import QueueFigures, queue_figures
from ...models import Job, Pause, Queue
from ..links import page_url
from ..paused import paused
from ..workers.fleet import Attendance, Fleet

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["QueueChangeList", "Standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The figures of a queue in the list, stored in its attribute ``standing``."""

    figures: QueueFigures
    attendance: Attendance
    jobs_url: str
    """The URL of the list of jobs; empty for a user who may not view it."""
    paused: str
    """Who has paused it, why, and until when; or a link to the form that pauses it, for users who may."""

    @property
    def unattended(self) -> bool:
        """Whether there is work and no worker."""
        return self.figures.needs_workers and not self.attendance.alive

    def linked(self, text: str, **filters: str) -> str:
        """Return a count with a link to these jobs."""
        if not self.jobs_url or text == "0":
            return text
        query = urlencode({"queue": self.figures.name, **filters})
        return format_html('<a href="{}?{}">{}</a>', self.jobs_url, query, text)


class QueueChangeList(ChangeList):
    """A page of the queues that match the search, by name, read with a constant number of statements.

    A queue without settings is an unsaved ``Queue``. It has a page, too.
    """

    model_admin: Any
    trouble = ""
    is_slow = False
    """Whether something could not be read in time."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the figures of all queues, and the settings of those on this page."""
        alias = self.model_admin.database
        site = self.model_admin.admin_site
        (every, self.is_slow), fleet = queue_figures(alias), Fleet(alias)
        if any(queue.needs_workers for queue in every):
            self.trouble = fleet.trouble
        elif self.is_slow:
            self.trouble = _("The figures of the queues could not be read in time.")
        words = self.query.casefold().split()
        found = [queue for queue in every if all(word in queue.name.casefold() for word in words)]
        jobs_url = page_url(site, request, Job, "changelist")
        pauses = paused(site, request, alias).queues
        pause_url = page_url(site, request, Pause, "add")
        self.result_list = self._with_settings(
            [
                Standing(
                    queue,
                    fleet.of(queue.name),
                    jobs_url,
                    pauses.get(queue.name) or _pause_link(pause_url, queue.name),
                )
                for queue in self._page_of(request, found)
            ]
        )
        self.full_result_count = len(every)
        self.show_full_result_count = True
        self.show_admin_actions = any(not queue._state.adding for queue in self.result_list)

    def _page_of(self, request: HttpRequest, found: list[QueueFigures]) -> list[QueueFigures]:
        self.paginator = self.model_admin.get_paginator(request, found, self.list_per_page)
        self.result_count = len(found)
        self.can_show_all = self.result_count <= self.list_max_show_all
        self.multi_page = self.result_count > self.list_per_page
        if not self.multi_page or (self.show_all and self.can_show_all):
            return found
        try:
            return list(self.paginator.page(self.page_num).object_list)
        except InvalidPage:
            raise IncorrectLookupParameters from None

    def _with_settings(self, standings: list[Standing]) -> list[Any]:
        saved = self.root_queryset.in_bulk([standing.figures.name for standing in standings])
        queues: list[Any] = []
        for standing in standings:
            queue: Any = saved.get(standing.figures.name) or Queue(name=standing.figures.name)
            queue.standing = standing
            queues.append(queue)
        return queues


def _pause_link(address: str, name: str) -> str:
    if not address:
        return ""
    return format_html(
        '<a href="{}?{}">{}</a>', address, urlencode({"kind": "queue", "name": name}), _("Pause")
    )
