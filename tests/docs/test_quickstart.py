"""The quickstart, as commands, on a database of its own."""

from __future__ import annotations

import re

from .shop import DOCS, EXAMPLES, manage


def test_the_quickstart(quickstart: dict[str, str]) -> None:
    page = (DOCS / "tutorial" / "quickstart.md").read_text()
    assert "shop.tests" not in page
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "first_order.py").read_text())
    assert "pending" in said
    manage(quickstart, "runqueueworker", "--burst")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "look.py").read_text())
    assert "done ann@example.com 1" in said
    for command in re.findall(r"^python manage\.py (\S+)", page, re.MULTILINE):
        assert command in {"migrate", "makemigrations", "shell", "runqueueworker", "check"}
