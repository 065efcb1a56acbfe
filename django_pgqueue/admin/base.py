"""Base classes of the admin: the database they show, the frame of their pages, read-only permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import flatten, flatten_fieldsets, quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import router
from django.db.models import Model, QuerySet
from django.forms import Media, Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from .. import conf
from ..models import JobStat
from ..postgres.aliases import same_database
from ..postgres.replicas import replica_state
from ..postgres.timeout import TimeLimitReached, time_limit
from .console import ROW_SHARD, Paused, bar, console_page, on_row_shard, page_url, paused
from .lists import OtherAddress, address
from .shards import View, act_on_all, chosen, is_of_all, list_of_all, of_page, on_shard, shard_links

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin
else:

    class ModelAdmin(admin.ModelAdmin):
        """Accepts a type parameter at run time; Django's own class does so only in the stubs."""

        def __class_getitem__(cls, model: object) -> type[ModelAdmin]:
            return cls


M = TypeVar("M", bound=Model)

_CHECKBOX = '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">'


class DatabaseForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a row in the database of its class."""

    using: ClassVar[str]
    taken: ClassVar[Any] = ""  # the message if there is a row of this name; empty if the name is not the key

    def validate_unique(self) -> None:
        """Do what Django's method does, which would query the database that the routers choose."""
        name = self.cleaned_data.get("name") if self.taken else None
        if name and type(self.instance)._base_manager.using(self.using).filter(pk=name).exists():
            self.add_error("name", ValidationError(self.taken, code="unique"))


class DatabaseAdmin(ModelAdmin[M]):
    """An admin class for one database: that of the routers, or the alias ``using`` of a subclass."""

    using: ClassVar[str | None] = None
    change_list: ClassVar[type[ChangeList]] = ChangeList
    pages_of_all_shards: ClassVar[frozenset[str]] = frozenset({"changelist"})
    add_up: ClassVar[Any] = None  # makes one row of the rows of several shards that have the same name
    reading_pages: ClassVar[frozenset[str]] = frozenset()  # which a replica may serve
    purpose: ClassVar[Any] = ""  # what a row is for and how to make one, for a list that has none
    fixed_fields: ClassVar[tuple[str, ...]] = ()  # the fields that an existing row keeps
    show_facets = admin.ShowFacets.NEVER  # facets count the whole table once for each choice
    show_full_result_count = False
    object_history_template = "admin/django_pgqueue/framed.html"
    delete_confirmation_template = delete_selected_confirmation_template = object_history_template

    class Media:
        css = {"all": [f"django_pgqueue/{name}.css" for name in ("theme", "admin", "keys")]}
        js: ClassVar[list[Any]] = [
            Script(f"django_pgqueue/{name}.js", defer=True) for name in ("times", "live", "keys", "search")
        ]

    @property
    def urls(self) -> list[URLPattern]:
        """The URLs for the site. Their pages have a time limit, and no control characters in their texts."""
        found = list(self.get_urls())
        for each in found:
            if isinstance(each, URLPattern):  # a project may include the URLs of others
                page = str(each.name).removeprefix(f"{self.opts.app_label}_{self.opts.model_name}_")
                view = limited(self, each.callback, may_use_replica=page in self.reading_pages)
                each.callback = on_shard(self, view, may_show_all=page in self.pages_of_all_shards)
        return found

    @admin.display(description=getattr(admin.ModelAdmin.action_checkbox, "short_description", ""))
    def action_checkbox(self, obj: Any) -> SafeString:
        """Show the checkbox of a row as Django does, but without the template of a widget for each row, which
        would take a fifth of the time of a list.
        """
        words = format_html(_("Select this object for an action - {}"), str(obj))
        alias = ROW_SHARD.get()
        key = f"{alias}:{obj.pk}" if alias else str(obj.pk)
        return format_html(_CHECKBOX, ACTION_CHECKBOX_NAME, key, words)

    @property
    def database(self) -> str:
        """The alias to read from."""
        admin, replica = _reading.get()
        return replica if admin is self else self.using or chosen() or router.db_for_read(self.model)

    @property
    def writes_to(self) -> str:
        """The alias to write to. With a replica, it is another one."""
        return self.using or chosen() or router.db_for_write(self.model)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the class of the list."""
        return self.change_list

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list, of all shards if the page shows all."""
        if not of_page(self) or chosen():
            return super().get_changelist_instance(request)
        return list_of_all(self, request, lambda own, part: super().get_changelist_instance(part))

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add the shard if the page shows all."""
        shown = super().get_list_display(request)
        return [*shown[:1], "shards", *shown[1:]] if is_of_all(request) else shown

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        """Let the shards lead to the page of a row that is several."""
        is_sum = self.add_up and is_of_all(request)
        return None if is_sum else super().get_list_display_links(request, list_display)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Leave out what a list of all shards cannot do: to delete asks for the rows of one database."""
        # Django 6.0 has no such parameter.
        actions = super().get_actions(request, *([action_location] if action_location else []))
        if is_of_all(request):
            actions.pop("delete_selected", None)
        return actions

    @admin.display(description=gettext_lazy("shard"))
    def shards(self, row: Any) -> Any:
        """Show the shard of a row, or links to the shards of a row that is several."""
        if self.add_up is None:
            return row._state.db
        return shard_links(row.of_shards, partial(self.address, "change", row.pk), row.without)

    def message_user(self, request: HttpRequest, message: Any, *args: Any, **kwargs: Any) -> None:
        """Name the shard that a message is about, if the page is about all."""
        if is_of_all(request) and chosen():
            message = format_html("{}: {}", chosen(), message)
        super().message_user(request, message, *args, **kwargs)

    def note_and_tell(
        self, request: HttpRequest, rows: Sequence[Any], note: str, words: str, flag: int = CHANGE
    ) -> None:
        """Note in the history of each row what an action has done, and show the user what has come of it."""
        LogEntry.objects.log_actions(request.user.pk, rows, flag, change_message=note)  # type: ignore[arg-type]
        self.message_user(request, words, messages.SUCCESS if rows else messages.WARNING)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add the bar, the title that it has for the page, and the banner that everything is paused; to an
        action on rows of several shards, a part for each.
        """
        shows_all = bool(of_page(self)) and not chosen()
        if shows_all and request.method == "POST":
            view = partial(DatabaseAdmin.changelist_view, self, extra_context=extra_context)
            return act_on_all(self, request, view)
        frame = {
            "title": capfirst(self.opts.verbose_name_plural),
            **bar(self.admin_site, request),
            "pgqueue_paused": Paused() if shows_all else paused(self.admin_site, request, self.database),
        }
        try:
            response = super().changelist_view(request, {**(extra_context or {}), **frame})
        except OtherAddress as error:
            if error.words:
                self.message_user(request, error.words, messages.WARNING)
            return HttpResponseRedirect(f"{request.path}{address(request, error.changes)}")
        context = getattr(response, "context_data", None) or {}
        if "deletable_objects" in context:
            context.update(self._frame_of(request, "delete_selected_confirmation"))
        if cl := context.get("cl"):
            if not len(cl.result_list):
                cl.show_admin_actions = False  # "0 of 0 selected"
            if shows_all:
                context["pgqueue_paused"] = Paused(cl.paused)
            if not (cl.query or cl.has_active_filters):
                cl.full_result_count = cl.result_count  # no "8 results (Show all)"
        return response

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the bar with all pages, and what ``page_context`` returns."""
        more = self.page_context(request, kwargs["obj"])
        context["media"] += more.pop("media")
        context.update({**bar(self.admin_site, request), **more})
        return super().render_change_form(request, context, *args, **kwargs)

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Return what a page shows beside its form; "media" is added to that of the form. ``obj`` is None on
        the page that adds a row.
        """
        return {"media": Media()}

    def subpage(self, route: str, view: View, name: str, /, **values: Any) -> URLPattern:
        """Return the URL of a page of this class, for ``get_urls``. The site checks who may enter."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_{name}"
        return path(route, self.admin_site.admin_view(view), values, name=name)

    def viewpage(self, route: str, page: View, name: str) -> URLPattern:
        """Return the URL of a page for users who may view the model. ``page`` takes this class as well."""

        def view(request: HttpRequest, **values: str) -> HttpResponseBase:
            if not self.has_view_permission(request):
                raise PermissionDenied
            return page(self, request, **values)

        return self.subpage(route, view, name)

    def rowpage(self, name: str, page: View, permission: str, /, **values: Any) -> URLPattern:
        """Return the URL of a page of one row. ``page`` gets the row, if this user may view it and has the
        permission, which is the name of a method (``may``).
        """

        def view(request: HttpRequest, object_id: str, **values: str) -> HttpResponseBase:
            row = self.get_object(request, unquote(object_id))
            if not (self.has_view_permission(request, row) and self.may(request, permission)):
                raise PermissionDenied
            if row is None:
                return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
            return page(request, row, **values)

        return self.subpage(f"<path:object_id>/{name}/", view, name, **values)

    def holds(self, request: HttpRequest, action: str) -> bool:
        """Return whether this user has the permission for an action, such as "retry"."""
        return request.user.has_perm(f"{self.opts.app_label}.{action}_{self.opts.model_name}")

    def may(self, request: HttpRequest, action: str) -> bool:
        """Return what the method for this permission says, which a project may have replaced."""
        return bool(getattr(self, f"has_{action}_permission")(request))

    def address(self, page: str, *arguments: Any) -> str:
        """Return the URL of a page of this class: ``address("change", job.pk)``."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        keys = [quote(each) for each in arguments]
        return on_row_shard(reverse(name, args=keys, current_app=self.admin_site.name))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Add the bar with all pages."""
        frame = {**self._frame_of(request, "object_history"), "pgqueue_media": self.media}
        return super().history_view(request, object_id, {**(extra_context or {}), **frame})

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        """Add the bar with all pages."""
        context.update(self._frame_of(request, "delete_confirmation"))
        return super().render_delete_form(request, context)

    def _frame_of(self, request: HttpRequest, template: str) -> dict[str, Any]:
        """Return the bar for a page of Django. Its times are texts of Django, which no script changes."""
        frame = {**bar(self.admin_site, request), "pgqueue_framed": f"admin/{template}.html"}
        frame["pgqueue_zone"]["is_kept"] = True
        return frame

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Permit the filters of the list, and no other field in the address. With
        ``?kwargs__token__startswith=a``, users would find out what they may not view, and what is redacted.
        """
        name = lookup.partition("__")[0]
        filters = {
            str(getattr(each, "parameter_name", each)).partition("__")[0]
            for each in flatten(self.get_list_filter(request))  # type: ignore[arg-type]
        }
        fields = {
            each for field in self.opts.get_fields() for each in (field.name, getattr(field, "attname", ""))
        }
        if name in fields - {*filters, self.opts.pk.name, self.date_hierarchy}:
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form for this database."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.using = self.writes_to
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Make fields of an existing row read-only."""
        return [*super().get_readonly_fields(request, obj), *(() if obj is None else self.fixed_fields)]

    def delete_model(self, request: HttpRequest, obj: M) -> None:
        """Delete from the database of this class."""
        obj.delete(using=self.writes_to)

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        """The rows of the database that this class shows."""
        rows = super().get_queryset(request)
        reads_replica = _reading.get()[0] is self
        return rows.using(self.database) if self.using or chosen() or reads_replica else rows


class ReadOnlyAdmin(DatabaseAdmin[M]):
    """Shows rows that only the queue itself writes."""

    def _never(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Return all fields, including the fields that a subclass adds."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))


# Control characters in the texts of the pages, written out. Names, arguments and messages of errors come from
# anywhere. They may contain characters that no browser shows, or that turn around what follows: after U+202E,
# ``gpj.exe`` is read as ``exe.jpg``. All pages of the admin classes pass through here, so that none has to
# think of it. Only texts change: addresses, and what a form sends back, keep the characters.

#: Not the marks U+200E, U+200F and U+061C, nor the joiners: texts in Arabic, Hebrew and Persian need them.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: What is not text to read: tags with their attributes, and fields, whose text is sent back.
_MARKUP = re.compile(r"(<textarea\b.*?</textarea\s*>|<[^>]*>)", re.IGNORECASE | re.DOTALL)


def _write_out(response: HttpResponse) -> None:
    if response.headers.get("Content-Type", "").startswith("text/html"):
        html = response.content.decode(response.charset)
        if _CONTROLS.search(html):
            parts = _MARKUP.split(html)
            parts[::2] = map(written_out, parts[::2])
            response.content = "".join(parts).encode(response.charset)


def written_out(text: str) -> str:
    """Return a text with its control characters written out, as JSON does."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# A time limit for each statement of a page that is read. What changes rows has to wait for their locks. The
# parts of a page that may have to read many rows have shorter limits, and the page is shown without them.
# This limit is for all other statements, which are fast unless something holds them up: a migration that has
# locked a table, or a server at its end. Without it, each look at the page would keep one more process and
# one more connection waiting.

SECONDS = 5.0  # for one statement


def limited(admin: DatabaseAdmin[Any], view: View, *, may_use_replica: bool = False) -> View:
    """Return a view of an admin class whose statements, also in its template, have the time limit. Its pages
    have no control characters in their texts, and may be read from a replica. An address with a zero byte,
    which PostgreSQL refuses, is a bad request; in the key of a row, Django writes it as ``_00``.
    """

    @wraps(view)
    def within_limit(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        keys = [unquote(str(kwargs.get(name, ""))) for name in ("object_id", "fingerprint")]
        query = [text for name, values in request.GET.lists() for text in (name, *values)]
        if any("\0" in str(part) for part in (*kwargs.values(), *keys, *query)):
            raise BadRequest("The address contains a zero byte.")
        shows_all = bool(of_page(admin)) and not chosen()  # each shard has limits of its own
        if shows_all or request.method not in {"GET", "HEAD"} or not admin.admin_site.has_permission(request):
            response = view(request, *args, **kwargs)
        else:
            try:
                with _reading_from(admin, request, may_use_replica), time_limit(admin.database, SECONDS):
                    response = view(request, *args, **kwargs)
                    if isinstance(response, SimpleTemplateResponse):
                        response.render()
            except TimeLimitReached:
                response = console_page(  # which reads nothing from the tables of the queue
                    admin,
                    request,
                    "admin/django_pgqueue/too_slow.html",
                    _("The database is too slow"),
                    seconds=int(SECONDS),
                    database_url=page_url(admin.admin_site, request, JobStat, "database"),
                )
                response.status_code = 503
        if isinstance(response, SimpleTemplateResponse):
            response.add_post_render_callback(_write_out)
        elif isinstance(response, HttpResponse):
            _write_out(response)
        return response

    return within_limit


#: The class whose page is read from a replica now, and the alias.
_reading: ContextVar[tuple[DatabaseAdmin[Any] | None, str]] = ContextVar("reading", default=(None, ""))


@contextmanager
def _reading_from(admin: DatabaseAdmin[Any], request: HttpRequest, may_use_replica: bool) -> Iterator[None]:
    """Let the class read from the replica of its database in the block, if there is one and it answers. Note
    the state of the database that is read, if it is not the one that is written, for the page to show.
    """
    replica = conf.current().replicas.get(admin.writes_to, "") if may_use_replica else ""
    source, before = replica or admin.database, _reading.get()
    if not same_database(source, admin.writes_to):
        answers, request.pgqueue_replica = replica_state(source)  # type: ignore[attr-defined]
        if replica and answers:
            _reading.set((admin, replica))
    try:
        yield
    finally:
        _reading.set(before)
