"""The style sheets of the admin pages, all of which may be on one page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import django_pgqueue

STATIC = Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue"


def test_a_class_is_styled_in_one_place() -> None:
    """If two components used the same class, each would change how the other looks."""
    sheets = "".join(
        re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL) for sheet in STATIC.glob("*.css")
    )
    lists = re.findall(r"^([^{}@]+)\{", sheets, re.MULTILINE)
    alone = Counter(each.strip() for each in lists if re.fullmatch(r"\.[\w-]+", each.strip()))
    assert len(alone) > 30
    assert {name for name, count in alone.items() if count > 1} == set()
