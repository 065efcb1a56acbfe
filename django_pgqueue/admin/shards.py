"""Which shard a page shows: the one that its address names (``?shard=s1``), or all of them together.

The views do not see the parameter. It is taken out of the query before, and the admin classes of the page
read and write that database (``chosen``). Afterwards each address of the queue on the page gets it, also in
redirects, so that a user stays on the shard: none of the links, forms and themes has to think of it. Two tabs
of a browser may show two shards, so neither a cookie nor the session may say which it is.

A shard that does not answer costs its own pages only. The connect has the time of ``ask_all``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import fields, is_dataclass, replace
from functools import cmp_to_key, partial, wraps
from heapq import merge
from itertools import chain, zip_longest
from typing import Any, TypeAlias, TypeVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ALL_VAR, PAGE_VAR, SEARCH_VAR
from django.core.paginator import Paginator
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase, HttpResponseRedirectBase
from django.template.response import SimpleTemplateResponse
from django.utils.html import escape, format_html, format_html_join
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from .. import conf
from ..context import holding
from ..postgres.ask import Answers, ask_all, hurried, reason
from ..tasks.links import public_id
from .console import SHARD, console_page, of_row, on_row_shard, paused, site_url
from .display import with_more

T = TypeVar("T")
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


# Lists of all shards: their rows merged or added up, and their actions. Each shard reads its own page of a
# list, with its filters and its search, side by side. The rows are merged in the order of the list, with a
# column for the shard. Rows of the same name are one row if the list adds up: its class says which
# (``add_up``). In a list that goes from one position to the next, the address has one for each shard: the
# last of its rows that was shown. Ids of shards say nothing about each other, so such rows are in the order
# in which they were made. A shard that does not answer is named above the list. It adds nothing to the rows,
# which say so.
#
# An action groups the rows by shard. Each shard asks for its own confirmation, and one page shows all.

_BETWEEN, _AT, _OF = "|", "=", "|"
PARTS = "pgqueue_parts"  # the attribute of a request that says on how many shards it acts
_MOST_NAMES = 10_000  # rows of a shard in a list that adds up


class _Merged(list[Any]):
    """Rows of several shards. While a row of one is drawn, its links lead there."""

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            alias = row._state.db or ""
            with of_row(alias), showing(alias):
                yield row


def list_of_all(admin: Any, request: HttpRequest, make: Callable[[Any, HttpRequest], Any]) -> Any:
    """Return the list of all shards. ``make`` makes the list of the shard that is shown, with an admin."""
    text = request.GET.get(PAGE_VAR, "")
    places = dict(part.split(_AT, 1) for part in text.split(_BETWEEN) if _AT in part)
    number = max(1, int(text)) if text.isdecimal() else 1

    def read(alias: str) -> Any:
        own, query, page = copy(request), request.GET.copy(), copy(admin)
        for name in (PAGE_VAR, ALL_VAR):
            query.pop(name, None)
        if alias in places:
            query[PAGE_VAR] = places[alias]
        if not hasattr(admin.get_changelist(request), "get_order"):  # by number: all rows up to this page
            page.list_per_page = _MOST_NAMES if admin.add_up else number * admin.list_per_page
        own.GET = query  # type: ignore[assignment]
        with showing(alias):
            found = make(page, own)
            found.result_list = [*found.result_list]
            with of_row(alias):
                found.paused = paused(admin.admin_site, request, alias).everything
        return found

    answers = ask_all(of_page(admin), read)
    if not answers.given:
        raise OperationalError(str(answers))
    lists = answers.given
    first = next(iter(lists.values()))
    if hasattr(first, "order"):
        _merge_by_position(lists, places)
    else:
        _merge_by_number(admin, request, answers, number)
    _unite(lists)
    first.unanswered = said_without(answers, sums=bool(admin.add_up))
    first.url_for_result = lambda row: on_row_shard(type(first).url_for_result(first, row))
    return first


def over_shards(
    admin: Any, ask: Callable[[str], T], *, keep: bool = False, only: Collection[str] | None = None
) -> Answers[T]:
    """Return what ``ask`` returns for the shards that a page shows: for all, side by side, and with links to
    each; or for one. ``only``: the ones of them that have answered before.
    """
    shards = () if chosen() else of_page(admin)
    if shards:

        def on_one(alias: str) -> T:
            with showing(alias), of_row(alias):
                return ask(alias)

        return ask_all(shards if only is None else only, on_one, keep=keep)
    alias = admin.writes_to if keep else admin.database
    return Answers({alias: ask(alias)}, {})


def said_without(answers: Answers[Any], *, sums: bool = True) -> str:
    """Return which shards did not answer, and that they are in no sum; empty if all did."""
    said = _("The sums are without %(names)s.") % {"names": ", ".join(answers.failed)}
    return " ".join([str(answers), *([said] if sums else [])]) if answers.failed else ""


def _unite(lists: Mapping[str, Any]) -> None:
    """Let the first list have the warnings, the choices of the filters, and the suggestions of all."""
    every = [*lists.values()]
    first = every[0]
    first.paused = named({alias: each.paused for alias, each in lists.items()})
    first.trouble = named({alias: getattr(each, "trouble", "") for alias, each in lists.items()})
    known: dict[type, Any] = {}
    for each in sorted(every, key=lambda one: -len(one.filter_specs)):  # one without choices is not there
        for spec in each.filter_specs:
            kept = known.setdefault(type(spec), spec) if hasattr(spec, "lookup_choices") else spec
            choices = dict([*getattr(kept, "lookup_choices", ()), *getattr(spec, "lookup_choices", ())])
            if kept is not spec and len(choices) > len(kept.lookup_choices):
                kept.lookup_choices = sorted(choices.items(), key=lambda choice: str(choice[1]))
    widest = max(every, key=lambda one: len(one.filter_specs)).filter_specs
    first.filter_specs = [*widest, *(spec for spec in known.values() if spec not in widest)]
    first.has_filters = bool(first.filter_specs)
    suggested = chain.from_iterable(getattr(one, "suggestions", ()) for one in every)
    first.suggestions = [*dict.fromkeys(suggested)]


def named(texts: Mapping[str, Any], between: str = " ") -> Any:
    """Return the texts that are not empty, each with its shard."""
    return format_html_join(between, "{}: {}", [(alias, text) for alias, text in texts.items() if text])


def _merge_by_position(lists: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Let the first list have the rows of all. ``places``: the position from which each shard went on."""
    first = next(iter(lists.values()))
    rows = [each.result_list for each in lists.values()]
    every = [*merge(*rows, key=_in_order(first.order.columns, first.made_at))]
    shown, after = every[: first.list_per_page], dict(places)
    for row in shown:
        names = reversed(lists[row._state.db].order.names)
        after[row._state.db] = "~".join(str(getattr(row, name)) for name in names)
    for alias, each in lists.items():
        if each.older and sum(row._state.db == alias for row in shown) == len(each.result_list):
            after[alias] = QueryDict(each.older[1:])[PAGE_VAR]
    first._describe(shown)
    first.result_list = _Merged(shown)
    first.newest = first.get_query_string() if places else None
    first.newer = first.older = None
    first.cut = any(each.cut for each in lists.values())
    first.gave_up_after = max(each.gave_up_after or 0 for each in lists.values()) or None
    first.read = sum(each.read for each in lists.values())
    if len(every) > len(shown) or any(each.older for each in lists.values()):
        position = _BETWEEN.join(f"{alias}{_AT}{place}" for alias, place in after.items())
        first.older = first.get_query_string({PAGE_VAR: position})


def _merge_by_number(admin: Any, request: HttpRequest, answers: Answers[Any], number: int) -> None:
    """Let the first list have a page of the rows of all."""
    lists, per_page = answers.given, admin.list_per_page
    first = next(iter(lists.values()))
    if admin.add_up:
        slow = {alias: first.is_slow for alias, first in lists.items() if first.is_slow}
        parts = {alias: {row.pk: row for row in each.result_list} for alias, each in lists.items()}
        every: list[Any] = []
        for _name, rows in sorted(by_name(parts).items()):
            every.append(admin.add_up(rows))
            every[-1].of_shards, every[-1].without = rows, [*answers.failed, *slow]
        total = len(every)
    else:
        columns = [_column(each) for each in first.get_ordering(request, first.root_queryset)]
        every = [*merge(*(each.result_list for each in lists.values()), key=_in_order(columns))]
        total = sum(each.result_count for each in lists.values())
    first.list_per_page = per_page
    first.paginator = Paginator(range(total), per_page)
    page = first.paginator.get_page(number)
    first.page_num, first.multi_page = page.number, first.paginator.num_pages > 1
    first.result_list = _Merged(every[(page.number - 1) * per_page : page.number * per_page])
    first.result_count = total
    first.full_result_count = max(total, sum(each.full_result_count or 0 for each in lists.values()))
    first.can_show_all = first.show_all = False


def by_name(parts: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """Return what each shard has of each name."""
    found: dict[str, dict[str, T]] = {}
    for alias, rows in parts.items():
        for name, row in rows.items():
            found.setdefault(name, {})[alias] = row
    return found


def union(lists: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all shards in their order."""
    return sorted({*chain.from_iterable(lists)})


def shard_links(aliases: Iterable[str], address: Callable[[], str], without: Collection[str] = ()) -> Any:
    """Return the shards that have a row, with links to it there, and the shards that did not answer.
    ``address`` returns that of the row on one of them.
    """
    urls = []
    for alias in aliases:
        with of_row(alias):
            urls.append((address(), alias))
    said = _("without %(names)s") % {"names": ", ".join(without)} if without else ""
    return with_more(format_html_join(", ", '<a href="{}">{}</a>', urls), said)


def added_up(rows: Sequence[T], *, most: Collection[str] = (), least: Collection[str] = ()) -> T:
    """Return one row for the same row of several shards. Numbers are added up, unless it is to have
    the highest (``most``) or the lowest. What one does not know, the sum does not know, either. A text is
    that of the first, and lists of texts are joined.
    """
    row: Any = rows[0]
    if len(rows) == 1:
        return rows[0]
    added: T = replace(row, **{
        field.name: _added([getattr(each, field.name) for each in rows], field.name, most, least)
        for field in fields(row)
    })  # fmt: skip
    return added


def _added(values: list[Any], name: str, most: Collection[str], least: Collection[str]) -> Any:
    known = [value for value in values if value is not None]
    first: Any = known[0] if known else None
    if name in most or name in least:
        return (max if name in most else min)(known, default=None)
    if isinstance(first, bool):
        return all(known)
    if isinstance(first, (int, float)):
        return sum(known) if len(known) == len(values) else None
    if is_dataclass(first):
        return added_up(known, most=most, least=least)
    if hasattr(first, "_fields"):  # a named tuple of numbers
        return first._make(map(sum, zip(*known, strict=True)))
    if isinstance(first, (list, tuple)):
        every = [*chain.from_iterable(known)]
        if every and isinstance(every[0], str):
            return [*dict.fromkeys(every)]
        if every and is_dataclass(every[0]):
            return joined(known, most=most, least=least)
        return [*map(sum, zip_longest(*known, fillvalue=0))]
    return first


def joined(lists: Iterable[Iterable[Any]], **extremes: Collection[str]) -> list[Any]:
    """Return the points of the charts of several shards, added up. A step that has not begun on the server of
    one of them is left out.
    """
    by_start = [{point.start: point for point in points} for points in lists]
    starts = set.intersection(*map(set, by_start))
    return [added_up([points[start] for points in by_start], **extremes) for start in sorted(starts)]


def _column(order: Any) -> str:
    """Return a column as in ``order_by()``, also for one that is an expression."""
    if isinstance(order, str):
        return order
    return f"{'-' if order.descending else ''}{order.expression.name}"


def _in_order(columns: Sequence[str], made_at: str = "id") -> Any:
    """Return the key that sorts rows of several shards as these columns do, with ``made_at`` for ids."""

    def compare(one: Any, other: Any) -> int:
        for column in columns:
            name = column.removeprefix("-")
            values = [getattr(row, made_at if name == "id" else name) for row in (one, other)]
            if values[0] != values[1]:
                is_after = values[1] is not None and (values[0] is None or values[0] > values[1])
                return 1 if is_after != column.startswith("-") else -1
        return 0

    return cmp_to_key(compare)


def act_on_all(admin: Any, request: HttpRequest, view: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    """Run an action on the rows that are ticked, such as ``other:5``, in the shard of each. One that does not
    answer is named, and costs the others nothing.
    """
    posts = _confirmed(request) or _ticked(request, of_page(admin))
    pages, targets, words = {}, set(), ""
    setattr(request, PARTS, len(posts))
    said = len(messages.get_messages(request))
    for alias, post in posts.items():
        request.POST = post  # type: ignore[assignment]
        try:
            with showing(alias), hurried(alias):
                page: Any = view(request)
        except (InterfaceError, OperationalError) as error:
            messages.error(request, str(Answers[Any]({}, {alias: reason(error)})))
            continue
        if "fields" in (getattr(page, "context_data", None) or {}):
            pages[alias] = page
        elif isinstance(page, HttpResponseRedirect):
            targets.add(page.url)
    if len(posts) > 1 and any(page.context_data.get("form") for page in pages.values()):
        words = _("Choose the jobs of one shard to edit them.")
    elif pages:
        return _one_page(pages)
    elif len(targets) == 1:  # such as the page of a group of failures
        return HttpResponseRedirect(targets.pop())
    elif len(messages.get_messages(request)) == said:
        words = _("Nothing has changed.") if posts else _("Nothing is selected.")
    if words:
        messages.warning(request, words)
    return HttpResponseRedirect(request.get_full_path())


def _one_page(pages: Mapping[str, Any]) -> HttpResponse:
    """Let the first of the pages that ask for confirmation ask what all of them do."""
    contexts = {alias: page.context_data for alias, page in pages.items()}

    def of_each(name: str) -> dict[str, Any]:
        return {alias: context.get(name) for alias, context in contexts.items()}

    first: Any = next(iter(pages.values()))
    first.context_data |= {
        "effects": [
            each._replace(sentence=format_html("{}: {}", alias, each.sentence))
            for alias, effects in of_each("effects").items()
            for each in effects
        ],
        "more": sum(of_each("more").values()),
        **{name: any(of_each(name).values()) for name in ("acts", "across", "may_count")},
        **{name: named(of_each(name)) for name in ("selected", "where", "warning")},
        "oldest": ", ".join(
            public_id(pk, alias) for alias, pk in of_each("oldest").items() if pk is not None
        ),
        "fields": [
            (f"{alias}{_OF}{name}", value)
            for alias, hidden in of_each("fields").items()
            for name, value in hidden
        ],
    }
    return first  # type: ignore[no-any-return]


def _ticked(request: HttpRequest, shards: Sequence[str]) -> dict[str, QueryDict]:
    """Return what is posted for each shard, by the ids that are ticked; for each one if it is about all."""
    keys: dict[str, list[str]] = {}
    for text in request.POST.getlist(ACTION_CHECKBOX_NAME):
        alias, _colon, key = text.partition(":")
        if alias in shards:
            keys.setdefault(alias, []).append(key)
    if request.POST.get("select_across") == "1":
        keys = {alias: ["0"] for alias in shards}
    found = {}
    for alias, ticked in keys.items():
        found[alias] = request.POST.copy()
        found[alias].setlist(ACTION_CHECKBOX_NAME, ticked)
    return found


def _confirmed(request: HttpRequest) -> dict[str, QueryDict]:
    """Return what is posted for each shard by the page that has asked; nothing if it has not been shown."""
    found: dict[str, QueryDict] = {}
    for name, values in request.POST.lists():
        alias, mark, field = name.partition(_OF)
        if mark:
            found.setdefault(alias, QueryDict(mutable=True)).setlist(field, values)
    for post in found.values():
        for name, values in request.POST.lists():
            if _OF not in name:
                post.setlist(name, values)
    return found
