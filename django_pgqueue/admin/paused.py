"""What is paused, in sentences, for the pages of queues, the overview, and the banner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..models import Pause
from ..models.queue import IN_FORCE
from . import display
from .console import page_url
from .display import linked


@dataclass(slots=True)
class Paused:
    """The pauses in force, in sentences that link to their pages if this user may view them."""

    everything: str = ""
    """For the banner; empty if not everything is paused."""
    queues: dict[str, str] = field(default_factory=dict)
    """The details for each paused queue."""
    queues_said: dict[str, str] = field(default_factory=dict)
    """The sentence about each paused queue."""
    tasks_said: list[str] = field(default_factory=list)


def paused(site: AdminSite, request: HttpRequest, alias: str) -> Paused:
    """Return what is paused in a database."""
    return in_words(site, request, Pause.objects.using(alias).filter(IN_FORCE).order_by("kind", "name"))


def in_words(site: AdminSite, request: HttpRequest, pauses: Iterable[Pause]) -> Paused:
    """Return the sentences about pauses that are read already."""
    found = Paused()
    sentences = {
        Pause.Kind.ALL: _("Everything is {details}."),
        Pause.Kind.QUEUE: _("Queue {name} is {details}."),
        Pause.Kind.TASK: _("Task {name} is {details}."),
    }
    for pause in pauses:
        url, facts = page_url(site, request, Pause, "change", pause.pk), details(pause)
        said = linked(url, format_html(sentences[Pause.Kind(pause.kind)], name=pause.name, details=facts))
        if pause.kind == Pause.Kind.ALL:
            found.everything = said
        elif pause.kind == Pause.Kind.QUEUE:
            found.queues_said[pause.name], found.queues[pause.name] = said, linked(url, facts)
        else:
            found.tasks_said.append(said)
    return found


def target(pause: Pause) -> str:
    """Return what is paused, in words."""
    words = {"all": _("everything"), "queue": _("queue %(name)s"), "task": _("task %(name)s")}
    return words[pause.kind] % {"name": pause.name}


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
