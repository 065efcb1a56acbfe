"""The frame of the pages about the queue, with its charts, and the page of the database."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags
from django.utils.translation import override

import django_pgqueue
from django_pgqueue import set_limit
from django_pgqueue.admin.charts import Chart, Series, sparkline
from django_pgqueue.admin.console import console_page
from django_pgqueue.models import Job
from django_pgqueue.monitoring import database as parts
from tests.support.factories import JobFactory, QueueFactory, WorkerFactory
from tests.support.sessions import Connect, start

from .helpers import body, staff, url
from .sites import other_site

LISTS = ("job", "queue", "worker", "jobstat", "jobbatch", "schedule", "limit", "pause")
DATABASE = "/admin/django_pgqueue/jobstat/database/"
UPDATE = "UPDATE pgqueue_job_live SET args = '[\"<secret>\"]'"


def bar(page: str) -> dict[str, tuple[str, str]]:
    """Return the address and ``aria-current`` of each page on the bar."""
    nav = page.split('<nav class="pgqueue-nav"')[1].split("</nav>")[0]
    links = re.findall(r'<a href="([^"]+)"(?: aria-current="(\w+)")?[^>]*>([^<]+)</a>', nav)
    return {label: (address, current) for address, current, label in links}


def here(page: str) -> dict[str, str]:
    """Return the pages of the bar that are this one or are above it."""
    return {label: current for label, (_address, current) in bar(page).items() if current}


def marked(page: str) -> list[str]:
    """Return the models that the list at the side marks."""
    return re.findall(r'<tr class="model-(\w+) current-model">', page)


def way(page: str) -> str:
    crumbs = page.split('class="breadcrumbs"')[1].partition(">")[2].split("</nav>")[0]
    return " ".join(strip_tags(crumbs).replace("&rsaquo;", "").split())


@pytest.mark.django_db
def test_each_page_has_the_bar_and_the_way_to_it(root: Client, list_at_the_side: None) -> None:
    addresses = [url("changelist", model=model) for model in LISTS]
    task, doctor = url("task", "shop.tasks.sync", model="jobstat"), f"{DATABASE}doctor/"
    others = (url("overview"), url("failures"), DATABASE, doctor, task)
    pages = {address: body(root, address) for address in (*addresses, *others)}
    for address, model in zip(addresses, LISTS, strict=True):
        found = bar(pages[address])
        assert [each for each, current in found.values() if current == "page"] == [address]
        assert {*addresses} <= {each for each, _current in found.values()}
        assert marked(pages[address]) == [model]
    assert here(body(root, url("change", JobFactory.create().pk))) == {"Jobs": "true"}
    assert here(body(root, url("change", WorkerFactory.create().pk, model="worker"))) == {"Workers": "true"}
    assert here(pages[url("overview")]) == {"Overview": "page"}
    assert [marked(pages[each]) for each in others] == [[], [], [], [], ["jobstat"]], "4 are of no model"
    assert way(pages[url("overview")]) == "Home Job queue Overview"
    assert way(pages[addresses[0]]) == "Home Job queue Jobs"
    assert way(pages[task]) == "Home Job queue Tasks shop.tasks.sync"
    of_limit = url("delete", set_limit(name="bank", concurrency=1).pk, model="limit")
    assert here(body(root, of_limit)) == {"Limits": "true"}
    chosen = {"action": "delete_selected", "_selected_action": [QueueFactory.create().pk], "index": 0}
    sure = root.post(url("changelist", model="queue"), chosen).content.decode()
    assert "Are you sure" in sure
    assert here(sure) == {"Queues": "page"}


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.urls("tests.admin.sites")
def test_another_site_has_its_own_pages_in_the_bar_and_on_a_page_without_a_model(root: Client) -> None:
    found = bar(body(root, "/ops/django_pgqueue/queue/"))
    assert "Batches" not in found, "this site has no class for it"
    assert found["Jobs"] == ("/ops/django_pgqueue/job/", "")
    assert all(address.startswith("/ops/") for address, _ in found.values())
    request = root.get("/ops/django_pgqueue/job/").wsgi_request
    admin = other_site.get_model_admin(Job)
    page = console_page(admin, request, "admin/django_pgqueue/console.html", "A <title>")
    html = page.render().content.decode()
    for text in ("A &lt;title&gt;", "/ops/django_pgqueue/queue/", "live.js"):
        assert text in html


# Charts and sparklines.

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
    cells = [re.findall(r'<td data-value="([^"]*)">(.*?)</td>', row) for _time, row in rows]
    zero = '<span class="pgqueue-zero">0</span>'
    assert cells == [[("", "-"), ("2", "2")], [("0", zero), ("1234.5", "1,234.5")]]
    assert not re.search(r"<script|<style| style=", page)
    empty = Chart("demo", "Attempts", [NOON], [Series("done", [0], ["0"])])
    page = render_to_string("admin/django_pgqueue/chart.html", {"chart": empty})
    assert "No attempts have ended in this time." in page
    assert "<table" not in page


def test_a_sparkline_is_the_same_in_each_language() -> None:
    with override("de"):
        line = sparkline([0, 5, None, 10], "alarm")
    assert 'points="0.0,26.5 40.0,14.0 80.0,26.5 120.0,1.5"' in line
    assert 'class="pgqueue-spark pgqueue-series-alarm"' in line
    assert sparkline([1]) == ""
    assert 'points="0.0,26.5 120.0,26.5"' in sparkline([0, 0])


# The page of the database.


@pytest.mark.django_db
def test_each_part_has_a_badge_and_says_when_to_act(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    parts._readings.clear()
    page = body(root, DATABASE)
    assert page.count('class="pgqueue-status pgqueue-check-') == page.count(">Act when ") == 7
    assert "pgqueue_job_past_1 (current)" in page
    assert "since the server&#x27;s sums were reset" in page
    monkeypatch.setattr(parts, "MOST_USED", 0)
    page = body(root, DATABASE)
    verdict = page.split('class="pgqueue-health"')[1].split("</p>")[0]
    assert '<a href="#pgqueue-part-sessions">Connections</a>' in verdict
    assert page.count("pgqueue-check-act") == verdict.count("<a ") >= 1


@pytest.mark.django_db(transaction=True)
def test_who_may_see_statements(connect: Connect, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(parts, "LONGEST_WAIT", 0)
    monkeypatch.setattr(parts, "OLDEST", 0)
    JobFactory.create()
    holder, waiter = connect(), connect()
    holder.execute(UPDATE)
    waiting = start(waiter, lambda each: each.execute(UPDATE)).blocked()
    page = body(staff("view_jobstat"), DATABASE)
    assert f"{waiter.info.backend_pid}" in page
    assert "secret" not in page
    assert re.search(r"[2-7] parts need attention:", page)  # what other tests do may be among them
    assert "Statements are shown to users who may view the arguments and results of jobs." in page
    reader = staff("view_jobstat", "view_arguments_job")
    page = body(reader, DATABASE)
    assert len(re.findall(r"(waits|blocks|statement): <code>UPDATE .*&lt;secret&gt;", page)) == 4
    settings.PGQUEUE = {"REDACT": ["re:<.*?>"]}
    page = body(reader, DATABASE)
    assert page.count("<code>UPDATE ") == 4
    assert "secret" not in page
    holder.rollback()
    waiting.result()


@pytest.mark.django_db(transaction=True)
def test_a_slow_part_says_so(root: Client, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect().execute("LOCK TABLE pgqueue_ring IN ACCESS EXCLUSIVE MODE")
    monkeypatch.setattr(parts, "PATIENCE", 0.1)
    page = body(root, DATABASE)
    sections = page.split('id="pgqueue-part-')[1:]
    slow = [each.partition('"')[0] for each in sections if "The server did not answer within 0.1 s." in each]
    assert (slow, page.count("pgqueue-check-slow")) == (["tables", "ring"], 2)
    assert "No session waits for a lock." in page


def test_a_class_is_styled_in_one_place() -> None:
    """If two components used the same class, each would change how the other looks."""
    sheets = re.sub(r"/\*.*?\*/", "", "".join(SHEETS.values()), flags=re.DOTALL)
    lists = re.findall(r"^([^{}@]+)\{", sheets, re.MULTILINE)
    alone = Counter(each.strip() for each in lists if re.fullmatch(r"\.[\w-]+", each.strip()))
    assert len(alone) > 30
    assert {name for name, count in alone.items() if count > 1} == set()


# --- The style sheets of the admin, with a theme that has none of Django's names


STATIC = Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue"
SHEETS = {path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.css")}
DEFINED = re.compile(r"(--[\w-]+)\s*:")
USED = re.compile(r"var\(\s*(--[\w-]+)\s*\)")  # without a fallback


def test_each_variable_has_a_fallback() -> None:
    """Either where it is used, or in the layer, which loses to each theme that defines it."""
    layer = {*DEFINED.findall(SHEETS["theme.css"])}
    for name, sheet in SHEETS.items():
        assert {*USED.findall(sheet)} - layer - {*DEFINED.findall(sheet)} == set(), name


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
