"""The frame of the pages about the queue: the bar with all pages, charts, and sparklines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags
from django.utils.translation import override

from django_pgqueue.admin.charts import Chart, Series, sparkline
from django_pgqueue.admin.console import console_page
from django_pgqueue.models import Job
from tests.support.factories import JobFactory, WorkerFactory

from .helpers import body, staff, url
from .sites import OtherJobAdmin, other_site

LISTS = ("job", "queue", "worker", "jobstat", "jobbatch", "schedule", "limit", "pause")


def bar(page: str) -> dict[str, tuple[str, str]]:
    """Return the address and ``aria-current`` of each page on the bar."""
    nav = page.split('<nav class="pgqueue-nav"')[1].split("</nav>")[0]
    links = re.findall(r'<a href="([^"]+)"(?: aria-current="(\w+)")?[^>]*>([^<]+)</a>', nav)
    return {label: (address, current) for address, current, label in links}


@pytest.mark.django_db
@pytest.mark.parametrize("model", LISTS)
def test_each_list_has_the_bar(root: Client, model: str) -> None:
    found = bar(body(root, url("changelist", model=model)))
    assert len(found) >= len(LISTS)
    assert [address for address, current in found.values() if current == "page"] == [
        url("changelist", model=model)
    ]
    assert {url("changelist", model=each) for each in LISTS} <= {address for address, _ in found.values()}


@pytest.mark.django_db
def test_a_page_below_another_one_belongs_to_it(root: Client) -> None:
    for model, label, key in (
        ("job", "Jobs", JobFactory.create().pk),
        ("worker", "Workers", WorkerFactory.create().pk),
    ):
        found = bar(body(root, url("change", key, model=model)))
        assert {name: current for name, (_, current) in found.items() if current} == {label: "true"}
    found = bar(body(root, url("overview")))
    assert {name: current for name, (_, current) in found.items() if current} == {"Overview": "page"}


@pytest.mark.django_db
def test_the_way_to_a_page_leads_over_the_app_and_the_page_above(root: Client) -> None:
    def way(page: str) -> str:
        crumbs = page.split('class="breadcrumbs"')[1].partition(">")[2].split("</nav>")[0]
        return " ".join(strip_tags(crumbs).replace("&rsaquo;", "").split())

    assert way(body(root, url("overview"))) == "Home Job queue Overview"
    assert way(body(root, url("changelist", model="job"))) == "Home Job queue Jobs"
    task = url("task", "shop.tasks.sync", model="jobstat")
    assert way(body(root, task)) == "Home Job queue Tasks shop.tasks.sync"


@pytest.mark.django_db
def test_the_bar_has_only_what_the_user_may_view() -> None:
    assert set(bar(body(staff("view_queue"), url("changelist", model="queue")))) == {"Queues"}
    shown = bar(body(staff("view_job", "view_pause"), url("overview")))
    assert {"Overview", "Jobs", "Pauses"} <= set(shown)
    assert not {"Queues", "Workers", "Tasks", "Batches", "Schedules", "Limits"} & set(shown)


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.urls("tests.admin.sites")
def test_the_bar_of_another_site_has_its_own_pages(root: Client) -> None:
    found = bar(body(root, "/ops/django_pgqueue/queue/"))
    assert "Batches" not in found, "this site has no class for it"
    assert found["Jobs"] == ("/ops/django_pgqueue/job/", "")
    assert all(address.startswith("/ops/") for address, _ in found.values())


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.urls("tests.admin.sites")
def test_a_page_without_a_model_is_one_of_its_site(root: Client) -> None:
    request = root.get("/ops/django_pgqueue/job/").wsgi_request
    admin = OtherJobAdmin(Job, other_site)
    page = console_page(admin, request, "admin/django_pgqueue/console.html", "A <title>")
    html = page.render().content.decode()
    assert "A &lt;title&gt;" in html
    assert "/ops/django_pgqueue/queue/" in html
    assert "live.js" in html


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_chart_is_a_table() -> None:
    times = [NOON, NOON + timedelta(minutes=1)]
    failed = Series("failed <b>", [0, None], ["0", ""], "alarm")
    done = Series("done", [1234.5, 2], ["1,234.5", "2"], stroke="dashed")
    chart = Chart("demo", "Attempts & more", times, [failed, done], kind="bars")
    page = render_to_string("admin/django_pgqueue/chart.html", {"chart": chart})
    assert 'data-pgqueue-chart="bars" data-unit="number" data-zone="UTC"' in page
    assert "Attempts &amp; more" in page
    assert 'pgqueue-series-alarm" data-stroke="solid">failed &lt;b&gt;</th>' in page
    rows = re.findall(r'<tr><th scope="row" data-value="(\d+)">.*?</th>(.*?)</tr>', page)
    assert [int(time) for time, _ in rows] == [NOON.timestamp() + 60, NOON.timestamp()]
    assert re.findall(r'<td data-value="([^"]*)">([^<]*)</td>', rows[0][1]) == [("", "-"), ("2", "2")]
    assert re.findall(r'<td data-value="([^"]*)">([^<]*)</td>', rows[1][1]) == [
        ("0", "0"),
        ("1234.5", "1,234.5"),
    ]
    assert not re.search(r"<script|<style| style=", page)


def test_an_empty_chart_says_so() -> None:
    chart = Chart("demo", "Attempts", [NOON], [Series("done", [0], ["0"])])
    page = render_to_string("admin/django_pgqueue/chart.html", {"chart": chart})
    assert "No attempts have ended in this time." in page
    assert "<table" not in page


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_sparkline_is_the_same_in_each_language(language: str) -> None:
    with override(language):
        line = sparkline([0, 5, None, 10], "alarm")
    assert 'points="0.0,26.5 40.0,14.0 80.0,26.5 120.0,1.5"' in line
    assert 'class="pgqueue-spark pgqueue-series-alarm"' in line
    assert sparkline([1]) == ""
    assert 'points="0.0,26.5 120.0,26.5"' in sparkline([0, 0])
