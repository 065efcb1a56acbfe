"""The list of queues: every queue that the overview shows, with or without its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import InvalidPage
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..models import Job, Pause, Queue
from . import display
from .depth import MOST_FAILURES, QueueDepth, depth
from .fleet import Attendance, Fleet
from .links import page_url
from .paused import paused

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["QueueChangeList", "Standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The figures of a queue in the list, stored in its attribute ``standing``."""

    depth: QueueDepth
    attendance: Attendance
    jobs_url: str
    """The URL of the list of jobs; empty for a user who may not view it."""
    paused: str
    """Who has paused it, why, and until when; or a link to the form that pauses it, for users who may."""

    @property
    def unattended(self) -> bool:
        """Whether there is work and no worker."""
        return self.depth.needs_workers and not self.attendance.alive

    def linked(self, count: int, **filters: str) -> str:
        """Return a count with a link to these jobs."""
        text = display.number(count)
        if filters.get("status") == "failed" and count >= MOST_FAILURES:
            text += "+"
        if not (count and self.jobs_url):
            return text
        query = urlencode({"queue": self.depth.name, **filters})
        return format_html('<a href="{}?{}">{}</a>', self.jobs_url, query, text)


class QueueChangeList(ChangeList):
    """A page of the queues that match the search, by name, read with a constant number of statements.

    A queue without settings is an unsaved ``Queue``. Its link opens the form that adds it.
    """

    model_admin: Any
    trouble = ""

    def get_results(self, request: HttpRequest) -> None:
        """Read the figures of all queues, and the settings of those on this page."""
        alias = self.model_admin.database
        site = self.model_admin.admin_site
        self._may_add = self.model_admin.has_add_permission(request)
        every, fleet = depth(alias), Fleet(alias)
        if any(queue.needs_workers for queue in every):
            self.trouble = fleet.trouble
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

    def _page_of(self, request: HttpRequest, found: list[QueueDepth]) -> list[QueueDepth]:
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
        saved = self.root_queryset.in_bulk([standing.depth.name for standing in standings])
        queues: list[Any] = []
        for standing in standings:
            queue: Any = saved.get(standing.depth.name) or Queue(name=standing.depth.name)
            queue.standing = standing
            queues.append(queue)
        return queues

    def url_for_result(self, result: Any) -> str:
        """Return the URL of the form with its settings, or of the form that adds settings.

        Raises ``NoReverseMatch`` if there is neither, so that Django shows the name without a link.
        """
        if not result._state.adding:
            return super().url_for_result(result)
        if not self._may_add:
            raise NoReverseMatch
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_add"
        address = reverse(name, current_app=self.model_admin.admin_site.name)
        return f"{address}?{urlencode({'name': result.pk})}"


def _pause_link(address: str, name: str) -> str:
    if not address:
        return ""
    return format_html(
        '<a href="{}?{}">{}</a>', address, urlencode({"kind": "queue", "name": name}), _("Pause")
    )
