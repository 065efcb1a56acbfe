"""Each page, also those that few people see, in light and dark, on a screen and on a phone: nothing to
complain about, and it fits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgqueue.admin import base
from django_pgqueue.admin.bulk import actions
from django_pgqueue.models import Job

from .conftest import LOOKS
from .faults import SEEN, Faults, axe, bare_times, overflow, small
from .hands import NAMES, address, change, press

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser

#: What answers to a look with something else than a page: it is for actions, or for nobody.
NO_PAGE = {302, 403, 405}
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
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(User.objects.get(username="root"))
    answer = client.get(path)
    if answer.status_code in NO_PAGE or b"</title>" not in answer.content:  # a part that refreshes itself
        return
    if name.endswith(DJANGO):
        look_at(window("phone"), path)
    else:
        page = window()
        look_at(page, path)
        look_again_on_a_phone(page)


@pytest.mark.parametrize("status", Job.Status.values)
def test_the_page_of_a_job_in_each_state(status: str, window: Open) -> None:
    job = Job.objects.filter(status=status, queue_name="demo-flows").earliest("pk")
    # These two have all parts that a page of a job may have.
    rules = None if status in {"failed", "running"} else SEEN
    look_at(window("phone"), change(job), rules)


def test_markup_in_a_job_is_text(window: Open) -> None:
    """It would be an error of the console, since the policy forbids inline scripts."""
    page = window()
    job = Job.objects.filter(queue_name="demo-flows", kwargs__has_key="note").earliest("pk")
    page.goto(change(job))
    assert "<b>markup</b>" in page.locator("#content").inner_text()


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


#: How far the head of each column stands from its values: at the left, or at the right if that is their side.
OFF = """() => [...document.querySelectorAll("#result_list thead th[class*=column-]")].map(head => {
    const name = [...head.classList].find(each => each.startsWith("column-")).slice(7);
    const cell = document.querySelector(`#result_list tbody .field-${name}`);
    const [above, below] = [head.querySelector(".text > *"), cell].map(each => {
        const range = document.createRange();
        range.selectNodeContents(each);
        return range.getBoundingClientRect();
    });
    const edge = getComputedStyle(cell).textAlign === "end" ? "right" : "left";
    return [name, Math.round(Math.abs(above[edge] - below[edge]))];
}).filter(([, distance]) => distance > 2)"""


@pytest.mark.parametrize("name", [each for each in NAMES if each.endswith("_changelist")])
def test_the_head_of_a_column_stands_above_its_values(name: str, window: Open) -> None:
    page = window()
    page.goto(address(name))
    assert page.evaluate(OFF) == []


def test_the_queues_of_the_overview_fit_beside_the_list_of_models(window: Open) -> None:
    page = window()
    page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'true')")
    page.goto(address("job_overview"))
    assert page.locator("#nav-sidebar").is_visible()
    box = page.locator("#pgqueue-queues-box")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


#: The right edges of the cells with the status and the time of a job that are out of sight.
OUT_OF_SIGHT = """() => [...document.querySelectorAll("#result_list tbody td")]
    .filter(cell => cell.matches(".field-state_and_note, .field-timing"))
    .map(cell => Math.round(cell.getBoundingClientRect().right)).filter(right => right > innerWidth)"""


def test_on_a_phone_status_and_time_of_jobs_are_in_sight_and_the_help_is_folded(window: Open) -> None:
    page = window("phone")
    for query in ("", "?status=failed", "?status=running", "?q=demo"):
        page.goto(f"{address('job_changelist')}{query}")
        assert page.locator("#result_list tbody .field-timing").count() > 0
        assert page.evaluate(OUT_OF_SIGHT) == [], query
        assert page.locator("details.pgqueue-more-help[open]").count() == 0
        assert page.locator("details.pgqueue-more-help").count() == 1


@pytest.mark.parametrize("name", ["jobstat_changelist", "queue_change"])
def test_on_a_phone_the_errors_of_tasks_are_in_sight(name: str, window: Open) -> None:
    page = window("phone")
    page.goto(address(name))
    heads = page.locator("#pgqueue-tasks-box thead tr").last.locator("th").all()
    edges = [box["x"] + box["width"] for head in heads if (box := head.bounding_box())]
    shown = [head.text_content() or "" for head, edge in zip(heads, edges, strict=True) if edge <= 390]
    assert {"task", "rate", "errors"} <= {re.sub(r"\W", "", text).casefold() for text in shown}


def test_the_name_of_a_queue_is_in_one_line_where_there_is_room(window: Open) -> None:
    page = window("wide")
    for name, names in (("job_changelist", ".pgqueue-queue"), ("queue_changelist", "tbody th > a")):
        page.goto(address(name))
        found = page.locator(f"#result_list {names}")
        heights = found.evaluate_all("all => all.map(each => each.offsetHeight)")
        assert 0 < max(heights) < 24, name


#: How far the colors of the chosen filter, and of another one, are from what is behind them.
FILTERS = """() => {
    const light = color => color.match(/[\\d.]+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0);
    const behind = light(getComputedStyle(document.querySelector("#changelist-filter")).backgroundColor);
    return ["li.selected > a", "li:not(.selected) > a"].map(each => Math.abs(behind
        - light(getComputedStyle(document.querySelector(`#changelist-filter ${each}`)).color)));
}"""


@pytest.mark.parametrize("look", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_the_chosen_filter_stands_out(look: str, window: Open) -> None:
    page = window(look)
    for name in ("job_changelist", "jobstat_changelist"):
        page.goto(address(name))
        chosen, other = page.evaluate(FILTERS)
        assert chosen > other, name


#: Of each legend: whether each series is below the time, and the sizes of the marks.
LEGENDS = """() => [...document.querySelectorAll(".u-legend")].map(legend => {
    const [time, ...series] = [...legend.querySelectorAll("tr")].map(each => each.getBoundingClientRect());
    const marks = [...legend.querySelectorAll("tr + tr .u-marker")].map(each => each.getBoundingClientRect());
    return [series.every(each => each.top >= time.bottom - 1),
        ...new Set(marks.map(({width, height}) => `${width.toFixed()} x ${height.toFixed()}`))];
})"""


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_all_legends_have_one_form(look: str, window: Open) -> None:
    page, forms = window(look), set[tuple[Any, ...]]()
    for name in ("job_overview", "queue_change", "jobstat_task", "job_failure"):
        page.goto(address(name))
        page.locator(".u-legend").first.wait_for()
        forms |= {tuple(form) for form in page.evaluate(LEGENDS)}
    assert forms == {(True, "21 x 3")}


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


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_more_jobs_than_are_counted(look: str, window: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_COUNTED", 100)
    monkeypatch.setattr(actions, "FIRST_COUNTED", (100,))
    page = window(look)
    page.goto(f"{address('job_changelist')}?status=pending")
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select all that match, on every page").click()
    page.select_option("select[name=action]", "cancel_jobs")
    press(page, "^(run|go)$")
    assert "100+ jobs are selected" in content(page)
    assert overflow(page) == axe(page, SEEN) == []


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
    is_count = re.compile('name="count"')
    page.route(
        re.compile("/job/"),
        lambda route: (
            held.append(route) if is_count.search(route.request.post_data or "") else route.continue_()
        ),
    )
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
    parameters = {
        name: given
        for name, given in connection.get_connection_params().items()
        if name in {"host", "port", "user", "password", "dbname"}
    }
    with psycopg.connect(**parameters) as migration:
        migration.execute("LOCK TABLE pgqueue_limit")
        answer: Any = page.goto(address("limit_changelist"))
    assert answer.status == 503
    assert "was given up" in content(page)
    assert overflow(page) == axe(page) == []
    assert all("503" in fault for fault in faults)
    faults.clear()
    page.get_by_role("link", name="Who waits for whom in the database").click()
    page.wait_for_url("**/database/**")
