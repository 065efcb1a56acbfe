"""The examples of redaction, and that the page lists the default names."""

from __future__ import annotations

from django.test import override_settings

from django_pgqueue.redaction import DEFAULT_NAMES, REDACTED, redact, redact_call, redact_text
from tests.app import secret_tasks

from .shop import DOCS, in_shop, setting


def test_the_example_of_names_and_patterns() -> None:
    with override_settings(**setting("redact")):
        given = {"customerIban": "DE1", "password": "x", "note": "card 4111 1111 1111 1111", "id": 5}
        shown = {"customerIban": REDACTED, "password": REDACTED, "note": f"card {REDACTED}", "id": 5}
        assert redact(given) == shown
        assert redact_text("4111-1111-1111-1111 is refused") == f"{REDACTED} is refused"


@in_shop
def test_the_example_of_a_callable() -> None:
    path = secret_tasks.sign_in.module_path
    with override_settings(PGQUEUE={"REDACT": "shop.privacy.redact"}):
        assert redact([{"email": "a@b.c", "n": 1}], path) == [{"email": REDACTED, "n": 1}]
        assert redact_call(["ann", "x"], {"api_key": "k"}, "shop.salaries.pay") == (
            [REDACTED, REDACTED], {"api_key": REDACTED},
        )  # fmt: skip


def test_the_page_lists_the_default_names() -> None:
    page = (DOCS / "howto" / "redaction.md").read_text()
    listed = page.split("The default names are ")[1].split(".\n")[0].replace("\n", " ")
    assert listed.replace(" and ", ", ") == ", ".join(f"`{name}`" for name in DEFAULT_NAMES)
