"""Each action has a test that presses it, and is offered to those who may run it only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.models import FailureGroup
from django_pgqueue.monitoring.failures import mute, unmute

from .clicks import CLICKS
from .pressed import buttons, name_of, offered

pytestmark = pytest.mark.browser

#: What an operator is not offered: settings, and copies of jobs.
EDITS = re.compile("(queue|limit|schedule)_(add|change|delete)|.* delete_selected|schedule_restore|job_clone")


def client(user: str) -> Client:
    made = Client(headers={"host": "127.0.0.1"})
    made.force_login(User.objects.get(username=user))
    return made


@pytest.fixture(scope="module")
def all_offers(console: str) -> Iterator[set[str]]:
    """What the pages offer to a superuser, while one of the groups of failures is muted."""
    group = FailureGroup.objects.latest("failed")
    mute("default", [group.pk], "root")
    yield offered(client("root"))
    unmute("default", [group.pk])


def test_the_table_lists_all_actions(all_offers: set[str]) -> None:
    names = {str(name_of(path, {})) for path in buttons(client("root"))}
    # Of some addresses, the pages tell several actions apart.
    whole = {name for name in names if not any(each.startswith(f"{name} ") for each in all_offers)}
    assert all_offers | whole == set(CLICKS)


def test_the_table_names_tests() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    modules = [import_module(f"{__package__}.{file.stem}") for file in files]
    names = {name for module in modules for name in vars(module)}
    assert {name.partition("[")[0] for name in CLICKS.values()} <= names


@pytest.mark.parametrize("user", ["viewer", "operator"])
def test_each_kind_of_user_is_offered_what_is_granted(user: str, all_offers: set[str]) -> None:
    granted = {name for name in all_offers if user == "operator" and not EDITS.fullmatch(name)}
    assert offered(client(user)) == granted


def test_who_may_only_look_may_press_no_button(console: str) -> None:
    viewer, paths = client("viewer"), buttons(client("root"))
    assert len(paths) > 10
    assert {path: viewer.post(path).status_code for path in paths} == dict.fromkeys(paths, 403)
