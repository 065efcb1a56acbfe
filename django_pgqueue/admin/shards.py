"""Which shard a page shows: the one that its address names (``?shard=s1``), or all of them together.

The views do not see the parameter. It is taken out of the query before, and the admin classes of the page
read and write that database (``chosen``). Afterwards each address of the queue on the page gets it, also in
redirects, so that a user stays on the shard: none of the links, forms and themes has to think of it. Two tabs
of a browser may show two shards, so neither a cookie nor the session may say which it is.

A shard that does not answer costs its own pages only. The connect has the time of ``ask_all``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeAlias

from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, HttpResponseRedirectBase
from django.template.response import SimpleTemplateResponse
from django.utils.html import escape
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from .. import conf
from ..context import holding
from ..postgres.ask import Answers, hurried, reason
from .console import SHARD, console_page, site_url

View: TypeAlias = Callable[..., HttpResponseBase]

_chosen: ContextVar[str] = ContextVar("shard", default="")
showing = partial(holding, _chosen)


def chosen() -> str:
    """Return the shard that is shown now; empty if there are no shards, or if the page shows all."""
    return _chosen.get()


def of_page(admin: Any) -> tuple[str, ...]:
    """Return the shards that the pages of a class can show; none if there are not several."""
    shards = conf.current().shards
    return shards if len(shards) > 1 and admin.using is None else ()


def is_of_all(request: HttpRequest) -> bool:
    """Return whether a page is about all shards, also while a part of it shows one."""
    return getattr(request, "pgqueue_shard", None) == ""


def on_shard(admin: Any, view: View, *, may_show_all: bool = False) -> View:
    """Return a view whose address may name a shard. Without one, it shows all if it can, or else the one in
    which the jobs are by default.
    """

    @wraps(view)
    def for_shard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        shards = of_page(admin)
        if not shards:
            return view(request, *args, **kwargs)
        query = request.GET.copy()
        given = (query.pop(SHARD, None) or [""])[-1]
        given = _named(unquote(str(kwargs.get("object_id", ""))), query.get(SEARCH_VAR, ""), shards) or given
        request.GET = query  # type: ignore[assignment]
        home = admin.database if admin.database in shards else shards[0]
        alias = given if given in shards else "" if may_show_all else home
        request.pgqueue_shards = [*([""] if may_show_all else []), *shards]  # type: ignore[attr-defined]
        request.pgqueue_shard = alias  # type: ignore[attr-defined]
        try:
            with showing(alias), hurried(alias):
                response = view(request, *args, **kwargs)
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
        except (InterfaceError, OperationalError) as error:
            if not admin.admin_site.has_permission(request):
                raise
            response = _unanswered(admin, request, alias, error)
        return _addressed(response, given, admin) if given in shards else response

    return for_shard


def _named(row: str, term: str, shards: tuple[str, ...]) -> str:
    """Return the shard that an id names, of a page or in the search field: "other:5"; empty if none does."""
    for text in (row, term.strip()):
        alias, _colon, number = text.rpartition(":")
        if number.isdecimal() and alias in shards:
            return alias
    return ""


def _unanswered(admin: Any, request: HttpRequest, alias: str, error: Exception) -> HttpResponse:
    """Return the page in place of one whose shard did not answer. It reads nothing from it."""
    why = reason(error)
    words = str(Answers[Any]({}, {alias: why})) if alias else why
    template = "admin/django_pgqueue/unanswered.html"
    response = console_page(admin, request, template, _("The database does not answer"), words=words)
    response.status_code = 503
    return response.render()


_TAGS = re.compile(r"<(?:a|form|link|div|section|ul|p|tr|td|button)\b[^>]*>", re.IGNORECASE)
_ADDRESS = re.compile(r'\b(href|action|formaction|data-pgqueue-source)="([^"#]+)')
_SEARCH = re.compile(r'<form\b[^>]*\bmethod="get"[^>]*>', re.IGNORECASE)


def _addressed(response: HttpResponseBase, alias: str, admin: Any) -> HttpResponseBase:
    """Let the addresses of the queue on a page, and that of a redirect, name the shard."""
    root = site_url(admin.admin_site, "app_list", admin.opts.app_label)
    if isinstance(response, HttpResponseRedirectBase):
        response.headers["Location"] = with_shard(response.url, alias, root)
    elif isinstance(response, HttpResponse) and response.headers.get("Content-Type", "").startswith(
        "text/html"
    ):
        field = f'<input type="hidden" name="{SHARD}" value="{escape(alias)}">'
        html = response.content.decode(response.charset)
        html = _TAGS.sub(lambda tag: _with_shards(tag[0], alias, root), html)
        response.content = _SEARCH.sub(lambda form: form[0] + field, html).encode(response.charset)
    return response


def _with_shards(tag: str, alias: str, root: str) -> str:
    return _ADDRESS.sub(lambda found: f'{found[1]}="{with_shard(found[2], alias, root, "&amp;")}', tag)


def with_shard(url: str, alias: str, root: str, between: str = "&") -> str:
    """Return an address with the shard, if it is below ``root`` or only a query, and names none yet."""
    path, _mark, query = url.partition("?")
    if (path and not path.startswith(root)) or re.search(rf"(?:^|[&;]){SHARD}=", query):
        return url
    return f"{path}?{query}{between if query else ''}{urlencode({SHARD: alias})}"
