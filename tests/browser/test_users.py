"""What each kind of user sees: no more than is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.models import Job, Worker

from .addresses import address, change
from .faults import SEEN, Faults, axe, overflow

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser

#: Buttons and boxes that change something. Others only copy.
CHANGES = "#content form[method=post] button:not([type=button]), #content input.action-select"


def test_who_may_only_look_finds_nothing_to_press(window: Open) -> None:
    page = window(user="viewer")
    job = Job.objects.filter(status="failed", queue_name="demo-orders").latest("pk")
    for path in (
        change(job),
        change(Worker.objects.all()[0]),
        address("job_changelist"),
        address("job_overview"),
    ):
        assert page.goto(path).status == 200  # type: ignore[union-attr]
        assert page.locator(CHANGES).count() == 0


@pytest.mark.parametrize(
    "name", ["job_overview", "job_changelist", "worker_changelist", "jobstat_changelist"]
)
def test_who_has_no_rights_sees_nothing(name: str, window: Open, faults: Faults) -> None:
    page = window(user="stranger")
    answer: Any = page.goto(address(name))
    assert answer.status == 403
    assert "demo-" not in page.content()
    assert all("403" in fault for fault in faults)
    faults.clear()


@pytest.mark.parametrize(("look", "user"), [("wide", "operator"), ("plain", "viewer")])
def test_pages_are_whole_on_a_wide_screen_and_without_scripts(look: str, user: str, window: Open) -> None:
    page = window(look, user=user)
    for name in ("job_overview", "job_changelist", "job_change", "worker_changelist", "jobstat_changelist"):
        answer: Any = page.goto(address(name))
        assert answer.status == 200
        assert "demo" in page.locator("#content").inner_text()
        if look != "plain":
            assert overflow(page) == []
            assert axe(page, SEEN) == []


@pytest.mark.parametrize(("user", "sees"), [("root", True), ("operator", False), ("viewer", False)])
def test_arguments_are_for_those_who_may_see_them(user: str, sees: bool, window: Open) -> None:
    page = window(user=user)
    job = Job.objects.filter(queue_name="demo-flows", kwargs__has_key="password").latest("pk")
    for path in (change(job), f"{address('job_changelist')}?q={job.pk}"):
        page.goto(path)
        assert "a-secret" not in page.content(), "it is redacted for everybody"
        if path == change(job):
            assert ("quotes" in page.content()) is sees
