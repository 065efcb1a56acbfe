"""The examples of hooks."""

from __future__ import annotations

from typing import Any

from django.core.checks import run_checks

from django_pgqueue import enqueue
from django_pgqueue.models import Job

from .shop import example, fresh, in_shop, setting, work


@in_shop
def test_each_attempt_works_for_the_tenant_of_its_job(settings: Any) -> None:
    settings.PGQUEUE = setting("hooks")["PGQUEUE"]
    hooks = example("hooks")
    job = Job(pk=hooks.count_for("acme"))
    gone = Job(pk=hooks.count_for("globex"))
    of_nobody = enqueue(hooks.count_orders)
    work()
    assert fresh(job).result == "the orders of acme"
    assert (fresh(gone).status, fresh(of_nobody).metadata) == ("cancelled", {})
    assert hooks.tenant.get() == ""
    assert "pgqueue.E024" not in {message.id for message in run_checks(tags=["pgqueue"])}
