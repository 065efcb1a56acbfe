"""The examples about groups."""

from __future__ import annotations

import runpy

from django.db import connections
from django.test import override_settings

from django_pgqueue import conf
from django_pgqueue.models import Job

from .shop import EXAMPLES, example, in_shop, statements, work


@in_shop
def test_tenants_take_turns() -> None:
    shop = example("tenants")
    shop.RENDERED.clear()
    shop.enqueue_some()
    groups = Job.objects.values_list("group_key", flat=True)
    assert set(groups) == {"acme", "tiny shop", "vip"}
    work()
    assert len(shop.RENDERED) == 501
    assert shop.RENDERED.index(("tiny shop", 1)) < 200


def test_the_settings_are_valid() -> None:
    values = runpy.run_path(str(EXAMPLES / "settings" / "fairness.py"))
    with override_settings(PGQUEUE=values["PGQUEUE"]):
        assert conf.problems() == []
        assert (conf.current().group_weights, conf.current().aging) == ({"acme": 5}, 600.0)


@in_shop
def test_groups_in_sql() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("groups"))
        cursor.nextset()
        assert [row[:2] for row in cursor.fetchall()] == [("acme", 1)]
