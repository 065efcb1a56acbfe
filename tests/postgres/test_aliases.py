"""New processes receive the connection parameters that were changed, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_pgqueue.postgres import aliases

ENGINE = "django.db.backends.postgresql"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """DATABASES as they were at the start and as they are now. A test may change them."""
    databases: dict[str, Any] = {
        "default": {
            "ENGINE": ENGINE,
            "NAME": "shop",
            "OPTIONS": {"context": object(), "pool": {"max_size": 4}},
        },
        "other": {"ENGINE": ENGINE, "NAME": "other", "PASSWORD": "secret"},
    }
    monkeypatch.setattr(aliases, "_remembered", aliases._copy(databases))
    monkeypatch.setattr(connections, "settings", connections.configure_settings(databases))
    for connection in connections.all(initialized_only=True):
        connection.close()  # left open by an earlier test; it would be closed as the new settings say
        monkeypatch.setattr(connection, "settings_dict", databases[connection.alias])
    return databases


def changed() -> Any:
    return json.loads(aliases.changed())


@pytest.mark.usefixtures("given")
def test_nothing_has_changed() -> None:
    assert aliases.changed() == ""


def test_only_what_differs_is_sent(given: dict[str, Any]) -> None:
    given["default"]["NAME"] = "test_shop_1"
    given["other"].update(NAME=Path("/var/x"), TEST={"NAME": object()})
    assert changed() == {"default": {"NAME": "test_shop_1"}, "other": {"NAME": "/var/x"}}


def test_an_alias_that_was_added_is_sent_as_a_whole(given: dict[str, Any]) -> None:
    given["tenant"] = {"ENGINE": ENGINE, "NAME": "tenant", "PASSWORD": "secret", "TEST": {}}
    assert changed() == {"tenant": {"ENGINE": ENGINE, "NAME": "tenant", "PASSWORD": "secret"}}


def test_what_json_does_not_have_is_refused_without_its_value(given: dict[str, Any]) -> None:
    given["default"]["OPTIONS"]["pool"]["max_size"] = 5
    with pytest.raises(
        ImproperlyConfigured, match=r"DATABASES\['default'\]\['OPTIONS'\] was changed"
    ) as raised:
        aliases.changed()
    assert "max_size" not in str(raised.value)


def test_only_the_first_ready_counts(given: dict[str, Any]) -> None:
    given["default"]["NAME"] = "test_shop"
    aliases.remember()
    assert changed() == {"default": {"NAME": "test_shop"}}


def test_what_was_sent_is_used(given: dict[str, Any]) -> None:
    aliases.apply(
        json.dumps({"default": {"NAME": "test_shop"}, "tenant": {"ENGINE": ENGINE, "NAME": "tenant"}})
    )
    assert given["default"]["NAME"] == aliases.database_name("default") == "test_shop"
    assert given["other"]["NAME"] == "other"
    assert connections.settings["tenant"]["NAME"] == "tenant"
