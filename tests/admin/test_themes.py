"""The style sheets of the admin, with a theme that has none of Django's names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import django_pgqueue

STATIC = Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue"
SHEETS = {path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.css")}
DEFINED = re.compile(r"(--[\w-]+)\s*:")
USED = re.compile(r"var\(\s*(--[\w-]+)\s*\)")  # without a fallback


@pytest.mark.parametrize("name", SHEETS)
def test_each_variable_has_a_fallback(name: str) -> None:
    """Either where it is used, or in the layer, which loses to each theme that defines it."""
    defined = {*DEFINED.findall(SHEETS["theme.css"]), *DEFINED.findall(SHEETS[name])}
    assert set(USED.findall(SHEETS[name])) - defined == set()


def test_the_dark_fallbacks_are_the_same_for_each_way_to_ask_for_them() -> None:
    sheet = SHEETS["theme.css"]
    blocks = re.findall(r"\{([^{}]*--body-bg:[^{}]*)\}", sheet)
    light, *dark = [dict(re.findall(r"(--[\w-]+): ([^;]+);", block)) for block in blocks]
    assert len(dark) == 2
    assert dark[0] == dark[1]
    assert set(dark[0]) < set(light)


def test_what_is_for_other_themes_is_in_the_layer() -> None:
    """Unlayered rules would change Django's own theme."""
    rest = re.sub(r"/\*.*?\*/", "", SHEETS["theme.css"], flags=re.DOTALL).strip()
    assert rest.startswith("@layer pgqueue {")
    assert rest.endswith("}")
    assert rest.count("@layer") == 1
