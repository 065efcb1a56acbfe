"""Base classes of the admin: the database that they show, the frame of their pages, and read-only
permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db import router
from django.db.models import Model
from django.forms import Script
from django.urls import URLPattern
from django.utils.text import capfirst

from .console import bar
from .controls import readable
from .page_limit import limited
from .paused import paused

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    ModelAdmin = admin.ModelAdmin
else:

    class ModelAdmin(admin.ModelAdmin):
        """Accepts a type parameter at run time; Django's own class does so only in the stubs."""

        def __class_getitem__(cls, model: object) -> type[ModelAdmin]:
            return cls


__all__ = ["DatabaseAdmin", "ReadOnlyAdmin"]

M = TypeVar("M", bound=Model)


class DatabaseAdmin(ModelAdmin[M]):
    """An admin class for one database: that of the routers, or the alias ``using`` of a subclass."""

    using: ClassVar[str | None] = None
    show_facets = admin.ShowFacets.NEVER  # facets count the whole table once for each choice
    show_full_result_count = False
    object_history_template = "admin/django_pgqueue/history.html"

    class Media:
        css = {"all": ["django_pgqueue/admin.css", "django_pgqueue/keys.css"]}
        js: ClassVar[list[Any]] = [
            Script("django_pgqueue/times.js", defer=True),
            Script("django_pgqueue/live.js", defer=True),
            Script("django_pgqueue/keys.js", defer=True),
        ]

    @property
    def urls(self) -> list[URLPattern]:
        """The URLs for the site. Their pages have a time limit, and no control characters in their texts."""
        found = list(self.get_urls())
        for each in found:
            if isinstance(each, URLPattern):  # a project may include the URLs of others
                each.callback = readable(limited(self, each.callback))
        return found

    @property
    def database(self) -> str:
        """The alias to read from."""
        return self.using or router.db_for_read(self.model)

    @property
    def writes_to(self) -> str:
        """The alias to write to. With a replica, it is another one."""
        return self.using or router.db_for_write(self.model)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add the bar, the title that it has for the page, and the banner that everything is paused."""
        frame = {
            "title": capfirst(self.opts.verbose_name_plural),
            **bar(self.admin_site, request),
            "pgqueue_paused": paused(self.admin_site, request, self.database),
        }
        return super().changelist_view(request, {**(extra_context or {}), **frame})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add the bar with all pages."""
        context.update(bar(self.admin_site, request))
        return super().render_change_form(request, context, add, change, form_url, obj)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add the bar with all pages. The times are texts that Django formats, so no script changes them."""
        frame = {**bar(self.admin_site, request), "media": self.media}
        frame["pgqueue_zone"] = frame["pgqueue_zone"]._replace(is_kept=True)
        return super().history_view(request, object_id, {**(extra_context or {}), **frame})

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Permit the filters of the list, and no other field in the address. With
        ``?kwargs__token__startswith=a``, users would find out what they may not view, and what is redacted.
        """
        name = lookup.partition("__")[0]
        filters = {_parameter(each) for each in self.get_list_filter(request)}
        if name not in {*filters, self.opts.pk.name, self.date_hierarchy} and _is_field(self.opts, name):
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        """The rows of the database that this class shows."""
        rows = super().get_queryset(request)
        return rows if self.using is None else rows.using(self.using)


class ReadOnlyAdmin(DatabaseAdmin[M]):
    """Shows rows that only the queue itself writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never permit this."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never permit this."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never permit this."""
        return False


def _parameter(each: Any) -> str:
    """Return the name that a filter of a list has in the address, without its lookup."""
    each = each[0] if isinstance(each, (list, tuple)) else each
    return str(getattr(each, "parameter_name", each)).partition("__")[0]


def _is_field(opts: Any, name: str) -> bool:
    try:
        opts.get_field(name)
    except FieldDoesNotExist:
        return False
    return True
