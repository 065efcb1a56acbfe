"""Links on the page of a job that the project declares for its tasks, and that its models have.

    @links_for(send_receipt)
    def receipt_links(job):
        return [("Order", reverse("admin:shop_order_change", args=[job.args[0]]))]

They are declared in ``admin.py``, so that a worker does not import the admin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from django.utils.text import capfirst
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from ...compat import DjangoTask
    from ...models import Job

__all__ = ["links_for", "links_of", "links_of_row"]

logger = logging.getLogger(__name__)

Links: TypeAlias = "Callable[[Job], Iterable[tuple[Any, str]]]"
L = TypeVar("L", bound=Links)

_declared: dict[str, Links] = {}


def links_for(*tasks: DjangoTask[..., Any] | str) -> Callable[[L], L]:
    """Declare a function that returns the links of the jobs of these tasks (or paths): pairs of a label and a
    URL. They are shown to users who may view arguments.
    """

    def declare(function: L) -> L:
        for task in tasks:
            _declared[task if isinstance(task, str) else task.module_path] = function
        return function

    return declare


def links_of(job: Job) -> list[tuple[str, str]]:
    """Return the declared links of a job. A function that raises is logged, and its links are left out."""
    function = _declared.get(job.task_path)
    if function is None:
        return []
    try:
        return [(str(label), str(url)) for label, url in function(job)]
    except Exception:  # the row of the argument may be deleted, and so on
        logger.warning("The links of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
        return [(_("The links of this task failed; see the log."), "")]


def links_of_row(row: Any) -> list[tuple[str, str]]:
    """Return the link to a row of a model that has ``get_absolute_url``, such as the payload of a job."""
    if not hasattr(row, "get_absolute_url"):
        return []
    try:
        return [(capfirst(str(row._meta.verbose_name)), str(row.get_absolute_url()))]
    except Exception:
        logger.warning("get_absolute_url() of %s failed.", type(row).__qualname__, exc_info=True)
        return []
