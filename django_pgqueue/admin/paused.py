"""What is paused, in sentences, for the pages of queues, the overview, and the banner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..models import Pause
from ..models.queue import IN_FORCE
from . import display
from .console import page_url


@dataclass(frozen=True, slots=True)
class Paused:
    """The pauses in force, each with a sentence that links to its page if this user may view it."""

    everything: str
    """The sentence for the banner; empty if not everything is paused."""
    others: list[str]
    """The sentences about queues and tasks."""
    queues: dict[str, str]
    """The details for each paused queue."""
    queues_said: dict[str, str]
    """The sentence about each paused queue."""
    tasks_said: list[str]
    """The sentences about tasks."""


def paused(site: AdminSite, request: HttpRequest, alias: str) -> Paused:
    """Return what is paused in a database."""
    return in_words(site, request, Pause.objects.using(alias).filter(IN_FORCE).order_by("kind", "name"))


def in_words(site: AdminSite, request: HttpRequest, pauses: Iterable[Pause]) -> Paused:
    """Return the sentences about pauses that are read already."""
    pauses = list(pauses)
    said = {pause.pk: _linked(_sentence(pause), site, request, pause) for pause in pauses}
    return Paused(
        everything=next((said[pause.pk] for pause in pauses if pause.kind == Pause.Kind.ALL), ""),
        others=[said[pause.pk] for pause in pauses if pause.kind != Pause.Kind.ALL],
        queues={
            pause.name: _linked(details(pause), site, request, pause)
            for pause in pauses
            if pause.kind == Pause.Kind.QUEUE
        },
        queues_said={pause.name: said[pause.pk] for pause in pauses if pause.kind == Pause.Kind.QUEUE},
        tasks_said=[said[pause.pk] for pause in pauses if pause.kind == Pause.Kind.TASK],
    )


def target(pause: Pause) -> str:
    """Return what is paused, in words."""
    if pause.kind == Pause.Kind.ALL:
        return _("everything")
    return (_("queue %(name)s") if pause.kind == Pause.Kind.QUEUE else _("task %(name)s")) % {
        "name": pause.name
    }


def details(pause: Pause) -> Any:
    """Return who has paused it, why, and until when: "paused by ann until 12:00: the bank is down"."""
    text = {
        (False, False): _("paused"),
        (True, False): _("paused by {author}"),
        (False, True): _("paused until {end}"),
        (True, True): _("paused by {author} until {end}"),
    }[bool(pause.author), pause.until is not None]
    words = format_html(text, author=pause.author, end=display.time(pause.until))
    return format_html("{}: {}", words, pause.reason) if pause.reason else words


def _sentence(pause: Pause) -> Any:
    text = {
        Pause.Kind.ALL: _("Everything is {details}."),
        Pause.Kind.QUEUE: _("Queue {name} is {details}."),
        Pause.Kind.TASK: _("Task {name} is {details}."),
    }[Pause.Kind(pause.kind)]
    return format_html(text, name=pause.name, details=details(pause))


def _linked(text: Any, site: AdminSite, request: HttpRequest, pause: Pause) -> Any:
    url = page_url(site, request, Pause, "change", pause.pk)
    return format_html('<a href="{}">{}</a>', url, text) if url else text
