"""Times in the zone of the browser, or in that which a project activates, with the exact instant."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest

from django_pgqueue.admin import display
from django_pgqueue.models import Job, Schedule

from .hands import address, change

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser

HERE = "Asia/Kabul"  # not a whole number of hours from any zone of the server
TIMES = """
    () => [...document.querySelectorAll("time.pgqueue-time")].map(
        ({dateTime, title, textContent, dataset}) => ({dateTime, title, text: textContent, ...dataset}))
"""
# Put an element on the page as live.js does.
ADD = """
    html => {
        const part = document.createElement("p");
        part.innerHTML = html;
        document.body.append(part);
        document.dispatchEvent(new CustomEvent("pgqueue:shown", {detail: part}));
        return [part.textContent, part.querySelector("time").title];
    }
"""
# What is written on a canvas.
RECORD = """
    window.written = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        written.push(text);
        return write.call(this, text, ...more);
    };
"""
REDRAW = """
    zone => {
        document.querySelectorAll("figure[data-zone]").forEach(figure => { figure.dataset.zone = zone; });
        written.length = 0;
        document.documentElement.dataset.theme = "dark";
    }
"""
LONG = 120_000  # milliseconds; in this time, each part is read at least once


def wrong(page: Page, zone: str) -> list[Any]:
    """Return the times that are not shown in a zone. There must be some times."""
    shown = page.evaluate(TIMES)
    assert shown
    return [each for each in shown if not is_right(each, zone)]


def is_right(shown: dict[str, str], zone: str) -> bool:
    moment = datetime.fromisoformat(shown["dateTime"]).astimezone(ZoneInfo(zone))
    if shown["title"] != f"{moment.isoformat(timespec='milliseconds')} {zone}":
        return False
    form = shown.get("pgqueueShows", "")
    before = shown.get("pgqueueAfter")
    is_same_day = before and datetime.fromisoformat(before).astimezone(ZoneInfo(zone)).date() == moment.date()
    text = f"{moment:%H:%M:%S}" if is_same_day else f"{moment:%Y-%m-%d %H:%M:%S}"
    text = f"{moment:%H:%M:%S.%f}"[:-3] if form == "clock" else text
    return form == "words" or shown["text"] == text


def zone_line(page: Page) -> str:
    return page.locator(".pgqueue-zone").inner_text()


def pages() -> list[str]:
    """Return pages with each form of a time."""
    failed = Job.objects.filter(status="failed", queue_name__startswith="demo-").latest("pk")
    logged = Job.objects.filter(logs__isnull=False).filter(queue_name__startswith="demo-").latest("pk")
    schedule = change(Schedule.objects.get(name="demo-daily-sales"))
    lists = map(address, ["job_changelist", "worker_changelist", "jobbatch_changelist"])
    return [*lists, change(failed), change(logged), schedule]


def test_times_are_shown_in_the_zone_of_the_browser(window: Open) -> None:
    page = window(timezone_id=HERE)
    for path in pages():
        page.goto(path)
        assert wrong(page, HERE) == []
        assert zone_line(page) == f"Times are in {HERE}."
    # The last page is that of a schedule: its own zone is another one than that of the browser.
    heads = page.locator("#pgqueue-runs ~ thead th").filter(visible=True)
    assert heads.all_text_contents()[:2] == [HERE, "UTC"]


def test_without_a_script_they_are_in_that_of_the_server(window: Open) -> None:
    page = window("plain", timezone_id=HERE)
    page.goto(pages()[-1])
    shown = page.locator("time.pgqueue-time").first
    at = datetime.fromisoformat(shown.get_attribute("datetime") or "")
    assert shown.inner_text() == f"{at:%Y-%m-%d %H:%M:%S}"
    assert shown.get_attribute("title") == f"{at.isoformat(timespec='milliseconds')} UTC"
    assert zone_line(page) == "Times are in UTC."
    assert page.locator("#pgqueue-runs ~ thead th:visible").count() == 2


def test_each_form_of_a_time(window: Open) -> None:
    night = datetime(2026, 7, 1, 19, 29, 59, 999_999, tzinfo=UTC)  # a moment before midnight
    second, last = timedelta(seconds=1), "2026-07-01T23:59:59.999+04:30 Asia/Kabul"
    page = window(timezone_id=HERE)
    page.goto(address("pause_changelist"))
    for element, text, title in [
        (display.time(night), "2026-07-01 23:59:59", last),
        (display.later_time(night, night - second), "23:59:59", last),
        (display.later_time(night, night - 20 * 3600 * second), "23:59:59", last),  # another day in UTC
        (display.later_time(night + second, night), "2026-07-02 00:00:00", "2026-07-02T00:00:00.999+04:30"),
        (display.clock_time(night), "23:59:59.999", last),
        (display.timed("5 min ago", night), "5 min ago", last),
    ]:
        shown, exact = page.evaluate(ADD, element)
        assert (shown, exact[: len(title)]) == (text, title)
    for value in ("2026-07-01T12:00:00", "odd"):  # no instants
        element = f'<time class="pgqueue-time" datetime="{value}" title="as it is">so</time>'
        assert page.evaluate(ADD, element) == ["so", "as it is"]


def test_the_offset_is_that_of_the_day_of_the_time(window: Open) -> None:
    page = window(timezone_id="America/New_York")
    page.goto(address("pause_changelist"))
    moments = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 7)]
    titles = [page.evaluate(ADD, display.time(moment))[1] for moment in moments]
    assert [title[23:29] for title in titles] == ["-05:00", "-04:00"]


def test_charts_and_what_is_refreshed_have_the_same_zone(window: Open) -> None:
    page = window(timezone_id=HERE)
    page.add_init_script(RECORD)
    page.clock.install()
    page.goto(address("job_overview"), wait_until="networkidle")
    check_chart(page, HERE)
    page.evaluate("() => { document.querySelector('#pgqueue-workers-now').dataset.old = 'yes'; }")
    page.clock.run_for(LONG)
    page.wait_for_selector("#pgqueue-workers-now:not([data-old])")
    page.wait_for_load_state("networkidle")
    assert wrong(page, HERE) == []
    check_chart(page, HERE)


def test_the_zone_that_a_project_activates_is_kept(window: Open) -> None:
    page = window(timezone_id=HERE)
    page.add_init_script(RECORD)
    domain = page.context.cookies()[0]["domain"]
    page.context.add_cookies([{"name": "zone", "value": "Asia/Tokyo", "domain": domain, "path": "/"}])
    page.goto(address("job_overview"), wait_until="networkidle")
    assert wrong(page, "Asia/Tokyo") == []
    check_chart(page, "Asia/Tokyo")
    assert zone_line(page) == "Times are in Asia/Tokyo."
    page.evaluate(REDRAW, "UTC-09:00")  # the name of a zone without a name
    page.wait_for_function("written.length")
    assert hours(page) <= last_hour(timezone(timedelta(hours=-9)))


@pytest.mark.parametrize("name", ["job_overview", "queue_change", "jobstat_task"])
@pytest.mark.parametrize("look", ["light", pytest.param("plain", marks=pytest.mark.long)])
def test_charts_from_one_time_to_another(window: Open, name: str, look: str) -> None:
    """The form is sent also from within the form of the settings of a queue, and without a script. What is
    drawn then: `tests.admin.test_overview`.
    """
    page = window(look)
    page.goto(f"{address(name)}?span=7d")
    page.locator("#pgqueue-other-times summary").click()
    now = datetime.now(UTC)
    start, end = (f"{now - timedelta(hours=ago):%Y-%m-%dT%H:00}" for ago in (8, 4))
    page.get_by_label("From", exact=True).fill(start)
    page.get_by_label("To", exact=True).fill(end)
    with page.expect_navigation():
        page.get_by_role("button", name="Filter by time").click()
    assert page.url.partition("?")[2] == urlencode({"span_from": start, "span_to": end})


def check_chart(page: Page, zone: str) -> None:
    """Compare the legend of the first chart, and the hours below it, with the clock of a zone."""
    figure = page.locator("figure[data-pgqueue-chart]").first
    newest = figure.locator(".u-legend .u-value").first.inner_text()
    assert newest in figure.locator("tbody time").all_text_contents()
    assert hours(page) <= last_hour(ZoneInfo(zone))


def hours(page: Page) -> set[str]:
    """Return the hours that are written below the charts. There must be some."""
    found = {text for text in page.evaluate("written") if re.fullmatch(r"\d\d:\d\d", text)}
    assert found
    return found


def last_hour(zone: tzinfo) -> set[str]:
    now = datetime.now(zone)
    return {f"{now - timedelta(minutes=ago):%H:%M}" for ago in range(-5, 70)}
