"""The page that asks for confirmation of an action on a few rows, and says what would happen to each of them.

It posts to its own address what was posted to show it, together with the rows that it has shown. So the same
view runs again: it checks the permissions, and acts on no other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.admin import AdminSite
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from ..models import Job
from .console import console_page

if TYPE_CHECKING:
    from .base import DatabaseAdmin

FIELD = "confirmed"
MOST_SHOWN = 100  # rows
_KEPT = ("action",)  # the fields of a list that Django needs to find the action again


class RowEffect(NamedTuple):
    """What would happen to a row."""

    sentence: Any
    """It contains the name (``about``)."""
    acts: bool = True
    """Whether the row would change."""
    mark: str = "row"
    """The end of the name of its CSS class, if it would."""


def about(row: Any, sentence: Any, **values: Any) -> Any:
    """Return a sentence about a row, with the name of the row in the place of ``{name}``.

    The name is a part of the sentence, because it does not come first in every language.
    """
    return format_html(str(sentence), name=format_html("<strong>{}</strong>", row), **values)


def is_confirmed(request: HttpRequest) -> bool:
    """Return whether the form of the page was sent."""
    return FIELD in request.POST


def ask(
    admin: DatabaseAdmin[Any],
    request: HttpRequest,
    title: Any,
    effects: Sequence[RowEffect],
    rows: Sequence[Any] = (),
    *,
    back: str,
    fields: Sequence[tuple[str, Any]] = (),
    **more: Any,
) -> TemplateResponse:
    """Return the page for an action on these rows. ``back``: the page to which the user may go back.

    ``fields`` name the rows in another way. ``more`` is for the template: a "warning", the "url" of the form,
    what is "selected", the "reason_length" of an action that takes a reason, and what ``bulk.confirm`` shows.
    """
    kept = [(FIELD, 1), *((name, request.POST[name]) for name in _KEPT if name in request.POST)]
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/confirm.html",
        title,
        effects=effects[:MOST_SHOWN],
        more=len(effects[MOST_SHOWN:]),
        acts=any(effect.acts for effect in effects),
        fields=[
            *((name, value) for name, value in kept if name not in dict(fields)),
            *fields,
            *((ACTION_CHECKBOX_NAME, row.pk) for row in rows),
        ],
        back=back,
        **more,
    )


# ----------------------------------------------------------------------------
# What a user may do with jobs: the admin class of jobs on the same site says it, as the project has it.


def may_with_jobs(site: AdminSite, request: HttpRequest, name: str) -> bool:
    """Return whether this user has a permission for jobs, named by its codename without the model."""
    method = f"has_{name}_permission"
    if site.is_registered(Job) and hasattr(site.get_model_admin(Job), method):
        return bool(getattr(site.get_model_admin(Job), method)(request))
    return request.user.has_perm(f"{Job._meta.app_label}.{name}_{Job._meta.model_name}")
