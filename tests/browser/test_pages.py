"""Each page, also those that few people see, in light and dark, on a screen and on a phone: nothing to
complain about, and it fits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection
from django.urls import reverse

from django_pgqueue.admin import base
from django_pgqueue.admin.bulk import actions
from django_pgqueue.models import Job

from .conftest import LOOKS
from .faults import SEEN, Faults, axe, bare_times, overflow, small
from .hands import NAMES, address, change, is_page, press

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from .conftest import Open

pytestmark = pytest.mark.browser

#: Pages of Django, to which this package adds only the bar: one look will do.
DJANGO = ("_history", "_delete")
#: Charts are drawn again when the window has another size, and colors take a moment to change.
SETTLED = """async () => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    await Promise.allSettled(document.getAnimations().map(each => each.finished));
}"""


def look_at(page: Any, path: str, rules: list[str] | None = None) -> None:
    answer = page.goto(path)
    assert answer.status == 200
    assert overflow(page) == []
    assert axe(page, rules) == []
    assert path.endswith("/history/") or bare_times(page) == []


def look_again_on_a_phone(page: Any) -> None:
    """Look at the same page in the dark on a phone, without loading it again."""
    phone = LOOKS["phone"]
    page.emulate_media(color_scheme=phone["color_scheme"])
    page.set_viewport_size(phone["viewport"])
    page.evaluate(SETTLED)
    assert overflow(page) == []
    assert axe(page, SEEN) == []
    assert small(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_can_be_used_by_everybody(name: str, window: Open) -> None:
    path = address(name)
    if is_page(path):
        page = window("phone" if name.endswith(DJANGO) else "light")
        look_at(page, path)
        if not name.endswith(DJANGO):
            look_again_on_a_phone(page)


@pytest.mark.parametrize("status", Job.Status.values)
def test_the_page_of_a_job_in_each_state(status: str, window: Open) -> None:
    job = Job.objects.filter(status=status, queue_name="demo-flows").earliest("pk")
    # These two have all parts that a page of a job may have.
    rules = None if status in {"failed", "running"} else SEEN
    look_at(window("phone"), change(job), rules)


def test_the_name_of_a_task_breaks_on_a_phone(window: Open) -> None:
    path = reverse("admin:django_pgqueue_jobstat_task", args=["shop." + "very_long_name_" * 6])
    look_at(window("phone"), path)


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


def test_the_queues_of_the_overview_fit_beside_the_list_of_models(window: Open) -> None:
    page = window()
    page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'true')")
    page.goto(address("job_overview"))
    assert page.locator("#nav-sidebar").is_visible()
    box = page.locator("#pgqueue-queues-box")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


JOBS = ["job_changelist?q=demo"]  # those of other tests have longer names
TALL = "names => names.map(each => each.offsetHeight).filter(height => height >= 24)"
#: Where the layout would be wrong: how pages are looked at, which ones, the elements, and a script that finds
#: what is wrong with them.
LAYOUT: dict[str, tuple[str, list[str], str, str]] = {
    # At the left, or at the right if that is the side of the values.
    "the head of a column is not above its values": (
        "light", [name for name in NAMES if name.endswith("_changelist") and name != "jobstat_changelist"],
        "#result_list thead th[class*=column-]", """
        heads => heads.map(head => {
            const name = [...head.classList].find(each => each.startsWith("column-")).slice(7);
            const cell = document.querySelector(`#result_list tbody .field-${name}`);
            const [above, below] = [head.querySelector(".text > *"), cell].map(each => {
                const range = document.createRange();
                range.selectNodeContents(each);
                return range.getBoundingClientRect();
            });
            const edge = getComputedStyle(cell).textAlign === "end" ? "right" : "left";
            return [name, Math.round(Math.abs(above[edge] - below[edge]))];
        }).filter(([, distance]) => distance > 2)""",
    ),
    "the status or the time of a job is out of sight": (
        "phone", [f"job_changelist?q=demo{more}" for more in ("", "&status=failed", "&status=running")],
        "#result_list tbody td:is(.field-state_and_note, .field-timing)",
        "cells => cells.map(cell => cell.getBoundingClientRect().right).filter(right => right > innerWidth)",
    ),
    "the help is not folded": (
        "phone", JOBS, "details.pgqueue-more-help", "all => all.filter(each => each.open).map(() => 'open')",
    ),
    "the errors of tasks are out of sight": (
        "phone", ["jobstat_changelist", "queue_change"], "#pgqueue-tasks-box thead tr:last-child th", r"""
        heads => ["task", "rate", "errors"].filter(name => !heads.some(head =>
            head.textContent.replace(/\W/g, "").toLowerCase() === name
            && head.getBoundingClientRect().right <= innerWidth))""",
    ),
    "the queue of a job has two lines": ("wide", JOBS, "#result_list .pgqueue-queue", TALL),
    "a queue has two lines": ("wide", ["queue_changelist"], "#result_list tbody th > a[href*=demo]", TALL),
    "the chosen filter does not stand out": (
        "light dark", ["job_changelist", "jobstat_changelist"], "#changelist-filter", r"""
        ([filters]) => {
            const light = color => color.match(/[\d.]+/g).slice(0, 3).reduce((sum, each) => sum + +each, 0);
            const behind = light(getComputedStyle(filters).backgroundColor);
            const [chosen, other] = ["li.selected > a", "li:not(.selected) > a"].map(each => Math.abs(behind
                - light(getComputedStyle(filters.querySelector(each)).color)));
            return chosen > other ? [] : [chosen, other];
        }""",
    ),
    # Each series is below the time, and the marks have one size.
    "legends differ": (
        "light phone", ["job_overview", "queue_change", "jobstat_task", "job_failure"], ".u-legend", """
        legends => legends.map(legend => {
            const box = each => each.getBoundingClientRect();
            const [time, ...series] = [...legend.querySelectorAll("tr")].map(box);
            const marks = [...legend.querySelectorAll("tr + tr .u-marker")].map(box);
            return [series.every(each => each.top >= time.bottom - 1),
                ...new Set(marks.map(({width, height}) => `${width.toFixed()} x ${height.toFixed()}`))];
        }).filter(form => String(form) !== "true,21 x 3")""",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "look"),
    [
        pytest.param(wrong, look, marks=pytest.mark.long if place else ())
        for wrong, (looks, *_) in LAYOUT.items()
        for place, look in enumerate(looks.split())
    ],
)
def test_the_layout(wrong: str, look: str, window: Open) -> None:
    _, names, elements, script = LAYOUT[wrong]
    page = window(look)
    for name in names:
        name, mark, query = name.partition("?")
        page.goto(f"{address(name)}{mark}{query}")
        page.locator(elements).first.wait_for(state="attached")
        assert page.locator(elements).evaluate_all(script) == [], name


#: How what pauses looks, wherever it is.
PAUSES = """() => [...document.querySelectorAll("#content :is(a, button, summary)")]
    .filter(each => each.textContent.trim() === "Pause" && each.checkVisibility())
    .map(each => getComputedStyle(each)).map(style => [style.backgroundColor, style.color, style.padding,
        style.borderRadius, style.fontSize, style.textTransform, style.textDecorationLine].join("; "))"""


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_what_pauses_looks_the_same_on_each_page(look: str, window: Open) -> None:
    page, looks = window(look), set[str]()
    names = "job_overview queue_changelist queue_change jobstat_task job_failure schedule_change"
    for name in names.split():
        page.goto(address(name))
        found = page.evaluate(PAUSES)
        assert found, name
        looks |= {*found}
    assert len(looks) == 1


def content(page: Any) -> str:
    return str(page.locator("#content").inner_text())


@pytest.mark.parametrize("look", ["light", pytest.param("plain", marks=pytest.mark.long)])
def test_jobs_are_counted_after_the_page_has_come(
    look: str, window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a script, a button counts them."""
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    page = window(look)
    page.goto(address("job_failure"))
    failed = Job.objects.filter(status="failed", error_fingerprint=page.locator("code").first.inner_text())
    press(page, "^retry the failed jobs")
    if look == "plain":
        assert "1+ failed jobs would run again." in content(page)
        press(page, "^count them all")
    page.get_by_text(f"{failed.count()} failed jobs would run again.").wait_for()
    assert page.get_by_text("Count them all").count() == 0
    assert "Not all of them are counted yet." not in content(page)
    assert page.get_by_role("button", name=re.compile("^Yes,")).is_enabled()


def test_what_is_filled_in_stays_when_all_jobs_are_counted(
    window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "FIRST_COUNTED", (1,))
    page, held = window(), []

    def hold(route: Route) -> None:
        is_count = 'name="count"' in (route.request.post_data or "")
        held.append(route) if is_count else route.continue_()

    page.route(re.compile("/job/"), hold)
    page.goto(f"{address('job_changelist')}?status=pending&queue=demo-mail")
    waiting = Job.objects.filter(status="pending", queue_name="demo-mail").count()
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select all that match, on every page").click()
    page.select_option("select[name=action]", "edit_jobs")
    press(page, "^(run|go)$")
    priority = page.get_by_label("Priority")
    priority.fill("7")
    assert "1+ waiting jobs would get the values below." in content(page)
    before = page.locator("input[name=confirmed]").input_value()
    held[0].continue_()
    page.get_by_text(f"{waiting:,} waiting jobs would get the values below.").wait_for()
    assert priority.input_value() == "7"
    assert priority.evaluate("field => field === document.activeElement")
    assert page.locator("input[name=confirmed]").input_value() != before, "the number is that of the order"


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_a_page_that_takes_too_long_says_why(
    look: str, window: Open, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SECONDS", 0.2)
    page = window(look)
    with psycopg.connect(**connection.get_connection_params()) as migration:
        migration.execute("LOCK TABLE pgqueue_limit")
        answer: Any = page.goto(address("limit_changelist"))
    assert answer.status == 503
    assert "was given up" in content(page)
    assert overflow(page) == axe(page) == []
    assert all("503" in fault for fault in faults)
    faults.clear()
    page.get_by_role("link", name="Who waits for whom in the database").click()
    page.wait_for_url("**/database/**")
