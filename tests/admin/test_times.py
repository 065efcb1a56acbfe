"""Times and spans on the pages: elements that times.js can show in the zone of the browser, with the exact
instant; words for how long something took; and percentiles.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from django_pgqueue import formatting
from django_pgqueue.admin import display
from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.monitoring.spans import percentile, percentile_text
from tests.support.factories import JobFactory, WorkerFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 7, 1, 12, 0, 0, 250_999, tzinfo=UTC)
EXACT = "2026-07-01T12:00:00.250+00:00 UTC"
TOKYO = "2026-07-01T21:00:00.250+09:00 Asia/Tokyo"


def logs_of(client: Client, *lines: tuple[str, str]) -> str:
    """Return the logs on the page of a job whose only attempt has logged these times and messages."""
    logged = [{"at": at, "level": "INFO", "logger": "shop", "message": message} for at, message in lines]
    job = JobFactory.create(done=True, logs=[{"attempt": 1, "lines": logged}])
    return body(client, url("change", job.pk)).split('id="log-1"')[1].split("</pre>")[0]


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (lambda: display.time(NOON), "2026-07-01 12:00:00"),
        (lambda: display.clock_time(NOON), "12:00:00.250"),
        (lambda: display.later_time(NOON, NOON - timedelta(hours=1)), "12:00:00"),
        (lambda: display.later_time(NOON, NOON - timedelta(hours=13)), "2026-07-01 12:00:00"),
        (lambda: display.timed("5 min ago", NOON), "5 min ago"),
        (lambda: display.zone_time(NOON), "2026-07-01 12:00:00"),
    ],
)  # fmt: skip
def test_each_form_has_the_exact_instant_as_its_title(element: Any, text: str) -> None:
    assert f'datetime="{NOON.isoformat()}" title="{EXACT}"' in element()
    assert element().endswith(f">{text}</time>")


def test_zones_of_times() -> None:
    """A later time has its date if it is another one in the current zone. Without a zone it has no offset, so
    the script leaves it alone. The zone of the settings is no activated one.
    """
    assert ">2026-07-02 00:00:00<" in display.later_time(NOON + timedelta(hours=12), NOON)
    with timezone.override("Asia/Tokyo"):
        assert ">2026-07-02 00:00:00<" in display.later_time(NOON + timedelta(hours=3), NOON)
    shown = display.time(NOON.replace(tzinfo=None))
    assert 'datetime="2026-07-01T12:00:00.250999" title="2026-07-01T12:00:00.250"' in shown
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        zone = display.page_zone()
        assert (zone["name"], zone["is_kept"]) == ("Asia/Tokyo", False)


def test_a_page_names_its_zone_and_keeps_an_activated_one(root: Client) -> None:
    """That it keeps the zone of the project decides whether the script does anything at all."""
    of_job = url("change", JobFactory.create(enqueued_at=NOON).pk)
    for active, is_kept in (("UTC", False), ("Etc/UTC", True), ("Asia/Tokyo", True)):
        with timezone.override(active):
            page, form = body(root, of_job), body(root, url("add", model="pause"))
        assert f"Times are in <span data-pgqueue-zone-name>{active}</span>." in page
        assert ("data-pgqueue-kept" in page) is is_kept
        assert f"In the time zone {active}. Empty: until a user resumes it." in form
    assert f'title="{TOKYO}">2026-07-01 21:00:00</time>' in page, "until the script runs"


def test_a_sentence_with_a_time_is_escaped() -> None:
    shown = display.filled("<b> %(who)s at %(time)s, 100%%", who="<i>ann</i>", time=display.time(NOON))
    assert shown.startswith("&lt;b&gt; &lt;i&gt;ann&lt;/i&gt; at <time ")
    assert shown.endswith("</time>, 100%")


def test_the_lines_of_a_log_have_their_times_also_below_a_message_of_many_lines(root: Client) -> None:
    noon = NOON.isoformat()
    shown = logs_of(root, (noon, "one\n<b>two</b>\n09:00:00.000 three"), (noon, "end"))
    assert shown.count('data-pgqueue-shows="clock">12:00:00.250</time> INFO shop: ') == 2
    assert "\n&lt;b&gt;two&lt;/b&gt;\n09:00:00.000 three\n<time " in shown


@override_settings(PGQUEUE={"REDACT": ["re:(?s)secret.*?end"]})
def test_lines_that_redaction_takes_out_do_not_shift_the_times_of_those_below(root: Client) -> None:
    later = NOON + timedelta(seconds=1)
    shown = logs_of(root, (NOON.isoformat(), "a secret\nof two lines: end"), (later.isoformat(), "after"))
    assert "secret" not in shown
    found = re.findall(r">([\d:.]+)</time> INFO shop: (\w+)", shown)
    assert found == [("12:00:00.250", "a"), ("12:00:01.250", "after")]


def test_words_about_a_time_have_it_as_their_title(root: Client) -> None:
    worker = WorkerFactory.create()
    JobFactory.create(done=True, finished_at=NOON)
    assert f'title="{EXACT}" data-pgqueue-shows="words">' in body(root, url("changelist"))
    beat = display.exact_time(worker.heartbeat_at)
    for page in (body(root, url("overview")), body(root, url("changelist", model="worker"))):
        assert f'title="{beat}" data-pgqueue-shows="words">' in page


#: How many seconds are written how: short, or in the unit that suits them.
WORDS: list[tuple[Callable[[Any], str], dict[float | None, str]]] = [
    (
        lambda length: formatting.period(None if length is None else timedelta(seconds=length)),
        {
            None: "", -5: "0 s", 59.9: "59 s", 60: "1 min", 3600: "1 h", 5399: "1 h 29 min",
            604_800: "7 d", 90_061: "1 d 1 h",
        },
    ),
    (
        formatting.span,
        {
            0: "0 ms", 0.00096: "1.0 ms", 0.00996: "10 ms", 0.5126: "513 ms", 0.9996: "1.0 s", 9.94: "9.9 s",
            58.98: "59 s", 59.6: "1 min", 7500: "2 h 5 min",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "cases"), WORDS, ids=["period", "span"])
def test_how_long_something_took(words: Callable[[Any], str], cases: dict[float | None, str]) -> None:
    assert {length: words(length) for length in cases} == cases


def histogram(times: list[float]) -> list[int]:
    """As a worker counts (``worker.producer.reporter.Accounts``)."""
    classes = [0] * (len(HISTOGRAM_BOUNDS) + 1)
    for time in times:
        classes[bisect_left(HISTOGRAM_BOUNDS, time)] += 1
    return classes


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_any_times_are_met_within_the_class(share: float) -> None:
    times = sorted(random.Random(7).lognormvariate(-2, 2) for _ in range(5000))
    true = times[math.ceil(share * len(times)) - 1]
    found = percentile(histogram(times), share)
    assert found is not None
    assert bisect_left(HISTOGRAM_BOUNDS, found) == bisect_left(HISTOGRAM_BOUNDS, true)
    assert true / 2 <= found <= true * 2


def test_the_ends_of_a_histogram() -> None:
    assert percentile([], 0.5) is None
    assert percentile(histogram([]), 0.5) is None
    assert percentile(histogram([0.0]), 0.99) == pytest.approx(0.00099)
    assert percentile(histogram([0.5, 1e6]), 0.5) == 0.512
    assert percentile(histogram([0.5, 1e6]), 0.99) == math.inf
    assert percentile_text(histogram([]), 0.5) == ""
    assert percentile_text(histogram([1e6]), 0.5) == "over 1 h 9 min"
    assert percentile_text(histogram([0.5] * 100), 1) == "512 ms"
