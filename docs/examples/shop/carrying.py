import logging
from contextvars import ContextVar

from django.contrib.auth import get_user_model
from django.utils.translation import gettext

from django_pgqueue import current_job, enqueue, task
from django_pgqueue.context import acting_as

logger = logging.getLogger(__name__)

current_tenant: ContextVar[str] = ContextVar("current_tenant")


@task(capture_logs="INFO")
def export_orders() -> str:
    # The language of the request is active again, and the variable has its value.
    logger.info("exporting the orders of %s", current_tenant.get())
    user = get_user_model().objects.get(pk=current_job().user_id)
    return f"{gettext('Welcome,')} {user.get_username()} ({current_tenant.get()})"


def export_for(user: object, tenant: str) -> int:
    """Enqueue without a request, for instance in a management command."""
    token = current_tenant.set(tenant)
    try:
        with acting_as(user):
            return enqueue(export_orders).pk
    finally:
        current_tenant.reset(token)
