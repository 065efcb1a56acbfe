"""Check the links of a call against its database, and write them as the SQL functions take them.

Whether the jobs and batches exist, and what has become of them, only the database knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat import InvalidTask

if TYPE_CHECKING:
    from ..link import Link
    from ..links import Links

__all__ = ["link_options"]


def link_options(links: Links, alias: str, *, in_memory: bool) -> dict[str, Any] | None:
    """Return the ``options`` for the links of a call that goes to the database ``alias``.

    Raise InvalidTask if one of them is elsewhere. In memory there is only one place.
    """
    if not in_memory:
        for link in links.after:
            _check_place(f"after has the job or batch {link.id}", link, alias)
        if links.batch is not None:
            _check_place(f"The batch {links.batch.id} is", links.batch, alias)
    options: dict[str, Any] = {}
    if links.after:
        options["after"] = [link.id for link in links.after]
        options["if_failed"] = links.if_failed
    if links.batch is not None:
        options["batch"] = links.batch.id
    return options or None


def _check_place(what: str, link: Link, alias: str) -> None:
    if not link.is_row:
        raise InvalidTask(
            f"{what} in memory: dummy_jobs() or DummyBackend has kept it there. It will never be over."
        )
    if link.alias not in (None, alias):
        raise InvalidTask(
            f"{what} in the database {link.alias!r}, but this call goes to {alias!r}. They must be in the "
            f"same one. Enqueue with .using(database={link.alias!r}), or let one job enqueue the other."
        )
