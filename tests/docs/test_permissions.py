"""The example with groups, and the tables of permissions."""

from __future__ import annotations

import re

from django.contrib.auth.models import Group, Permission

from .shop import DOCS, example, in_shop


@in_shop
def test_the_groups_have_all_permissions_each_more_than_the_one_before() -> None:
    groups = example("groups")
    for _ in range(2):
        groups.make_groups()
    granted = [
        set(Group.objects.get(name=f"Job queue {name}").permissions.values_list("codename", flat=True))
        for name in ("viewer", "operator", "admin")
    ]
    viewer, operator, whole = granted
    existing = Permission.objects.filter(content_type__app_label="django_pgqueue")
    assert whole == set(existing.values_list("codename", flat=True)), "one is missing in groups.py"
    assert viewer < operator < whole
    assert all(name.startswith("view_") for name in viewer)
    assert [set(names) for names in (groups.VIEWER, groups.OPERATOR, groups.ADMIN)] == granted
    page = (DOCS / "howto" / "permissions.md").read_text()
    listed = page.split("## Each permission")[1].split("\n## ")[0]
    assert {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", listed, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    } == whole
    rows = dict(re.findall(r"^\| (\w+) \| (also .+?) \|", page, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows["operator"])) == operator - viewer
    assert set(re.findall(r"`(\w+)`", rows["admin"])) == whole - operator
