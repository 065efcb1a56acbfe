"""The order for an action on many jobs, as it travels to the job that carries it out: what the confirmation
page has shown, who has confirmed it, and how the same jobs are found again.

An order is JSON and has a seal: a signature with the project's ``SECRET_KEY``. So nobody can have jobs
changed in the name of another user by enqueueing a job with other arguments. It is refused after a day.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin.sites import all_sites
from django.contrib.auth import get_user_model
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.urls import get_resolver
from django.utils.translation import gettext as _

from ...models import Job
from ...postgres.clock import server_now
from ..history import filter_words
from ..jobs.filters import AS_OF
from ..jobs.search import MEANING
from .actions import ACTIONS
from .effects import permitted
from .selection import Bounds

if TYPE_CHECKING:
    from typing import Self

    from .actions import Action
    from .effects import Effect

SALT = "django_pgqueue.admin.bulk"
LONGEST = timedelta(days=1)


class Refused(Exception):
    """The order is not carried out, or no further; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was confirmed. All values are JSON."""

    site: str
    """The admin site and the classes that show the jobs (``identity``)."""
    user: str
    """The primary key of the user who has confirmed it."""
    action: str
    effects: list[str]
    """The effects that change jobs."""
    counted: int
    """How many jobs would change."""
    is_exact: bool
    """If not, more of them would change than were counted."""
    limits: Bounds
    query: str
    """The query string of the list, which contains the filters."""
    meaning: str
    """What the search term was (``search.meaning_of``); "" if there was none."""
    ids: list[int] | None
    """The selected jobs; None: all that match."""
    values: dict[str, Any]
    """The new values of an edit."""
    details: str
    """The new values of an edit, in words."""

    def sealed(self) -> tuple[dict[str, Any], str]:
        """Return the order as JSON, and its seal."""
        order = asdict(self)
        return order, _signer().signature(_text(order))

    @classmethod
    def opened(cls, order: Any, seal: Any, alias: str) -> Self:
        """Return an order from its JSON. Raise ``Refused`` if it was changed, or is old.

        ``alias``: the database of the job that carries it out.
        """
        try:
            _signer().unsign(f"{_text(order)}:{seal}")
        except signing.BadSignature:
            raise Refused(
                _("The seal of this order is not valid: the order was changed, or SECRET_KEY differs here.")
            ) from None
        opened = cls(**{**order, "limits": Bounds(**order["limits"])})
        if server_now(alias) - opened.as_of > LONGEST:
            raise Refused(_("This order is more than a day old. Select the jobs again."))
        return opened

    @property
    def kind(self) -> Action:
        """The action."""
        return ACTIONS[self.action]

    @property
    def as_of(self) -> datetime:
        """When the jobs were counted."""
        return datetime.fromisoformat(self.limits.as_of)

    @property
    def filters(self) -> str:
        """The filters of the list, in words."""
        return filter_words(QueryDict(self.query), self.meaning)

    @property
    def arguments(self) -> dict[str, Any]:
        """The new values of an edit, as ``control.edit`` takes them."""
        moment = self.values.get("run_after")
        return {**self.values, "run_after": datetime.fromisoformat(moment)} if moment else self.values

    def request(self) -> HttpRequest:
        """Return a request for the list, by the user as he or she is now. Raise ``Refused`` if the user, or
        the permission, no longer exists.
        """
        request: Any = HttpRequest()
        request.method, request.GET = "GET", QueryDict(self.query)
        request.user = get_user_model()._default_manager.filter(pk=self.user).first()
        setattr(request, AS_OF, self.as_of)
        # Race: the last job with the key or the id that was searched may be gone. Then the same term would be
        # searched as text, and find other jobs.
        setattr(request, MEANING, self.meaning)
        if request.user is None:
            raise Refused(_("The user who has confirmed this no longer exists."))
        admin = _admin(self.site)
        is_allowed = (
            admin.admin_site.has_permission(request)
            and admin.has_view_permission(request)
            and getattr(admin, f"has_{self.action}_permission")(request)
            and len(self.acting(request)) == len(self.effects)
        )
        if not is_allowed:
            words = _("The user %(user)s may no longer do this.") % {"user": request.user.get_username()}
            raise Refused(words)
        return request  # type: ignore[no-any-return]

    def acting(self, request: HttpRequest) -> list[Effect]:
        """Return the effects that this user may have on jobs."""
        admin = _admin(self.site)
        meant = permitted(self.kind.effects, lambda name: admin.may(request, name))
        return [effect for effect in meant if effect.acts and effect.key in self.effects]

    def jobs(self, request: HttpRequest, alias: str) -> QuerySet[Job]:
        """Return the jobs of the list, or those that were selected."""
        admin = _admin(self.site)
        if self.ids is not None:
            rows: QuerySet[Job] = admin.get_queryset(request).using(alias)
            return rows.filter(pk__in=self.ids)
        found: QuerySet[Job] = admin.get_changelist_instance(request).get_queryset(request)
        return found.using(alias)

    def with_values(self, values: dict[str, Any]) -> Self:
        """Return the order with the new values of an edit."""
        moment = values.get("run_after")
        return replace(self, values={**values, "run_after": moment.isoformat()} if moment else values)


def identity(admin: Any) -> str:
    """Return the name of the site of an admin class, and what distinguishes it from others of this name."""
    site = admin.admin_site
    return " ".join(
        [site.name, *(f"{type(each).__module__}.{type(each).__qualname__}" for each in (site, admin))]
    )


def _admin(name: str) -> Any:
    """Return the admin class of jobs with this identity."""
    get_resolver().url_patterns  # noqa: B018 - a site may be made where its URLs are
    for site in all_sites:
        if site.is_registered(Job) and identity(site.get_model_admin(Job)) == name:
            return site.get_model_admin(Job)
    raise Refused(_("The admin site %(name)s does not exist in this process.") % {"name": name})


def _text(order: Any) -> str:
    return json.dumps(order, sort_keys=True, separators=(",", ":"))


def _signer() -> signing.Signer:
    return signing.Signer(salt=SALT)
