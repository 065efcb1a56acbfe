"""Percentiles from histograms, against values that are known."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin.last_hour import last_hour
from django_pgqueue.admin.percentiles import percentile, percentile_text
from django_pgqueue.models.stat import HISTOGRAM_BOUNDS
from tests.support.factories import JobStatFactory

from .helpers import body, listed, staff, url


def histogram(times: list[float]) -> list[int]:
    """As a worker counts (``producer.stats.Counter``)."""
    classes = [0] * (len(HISTOGRAM_BOUNDS) + 1)
    for time in times:
        classes[bisect_left(HISTOGRAM_BOUNDS, time)] += 1
    return classes


def test_times_that_are_spread_evenly_in_their_class_are_met_exactly() -> None:
    lower, upper = HISTOGRAM_BOUNDS[9:11]
    times = [lower + (upper - lower) * (n + 1) / 1000 for n in range(1000)]
    for share in (0.5, 0.95, 0.99):
        assert percentile(histogram(times), share) == pytest.approx(times[round(share * 1000) - 1])


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


@pytest.mark.django_db
def test_the_last_hour_adds_up_the_minutes_of_each_task(root: Client) -> None:
    now = timezone.now()
    for minutes, times in ((1, [0.010] * 60), (30, [0.010] * 35 + [40.0] * 5), (90, [4000.0] * 100)):
        JobStatFactory.create(
            task_path="shop.tasks.a", minute=now - timedelta(minutes=minutes), done=len(times), failed=1,
            run_histogram=histogram(times), wait_histogram=histogram(times),
        )  # fmt: skip
    JobStatFactory.create(task_path="shop.tasks.b", queue_name="mail", done=3, wait_histogram=[])
    first, second = last_hour("default")
    assert (first.task_path, first.done, first.failed, first.cancelled) == ("shop.tasks.a", 100, 2, 0)
    assert first.run_histogram == histogram([0.010] * 95 + [40.0] * 5)
    assert first.waited == first.ran
    assert first.ran[:2] == ["12 ms", "16 ms"]
    assert first.ran[2] == "59 s"
    assert (second.task_path, second.waited) == ("shop.tasks.b", ["", "", ""])
    assert last_hour("default", queue="mail") == [second] == last_hour("default", task="shop.tasks.b")
    page = body(root, url("changelist", model="jobstat"), queue="mail")
    assert "Last hour by task" in page
    assert '<th scope="row">shop.<wbr>tasks.<wbr>b</th>' in page
    assert '<th scope="row">shop.<wbr>tasks.<wbr>a</th>' not in page
    assert root.get(f"{url('changelist', model='jobstat')}?queue=a%00b").status_code == 200


@pytest.mark.django_db
def test_percentiles_in_the_list_and_on_the_page_of_a_minute() -> None:
    viewer = staff("view_jobstat")
    times = [0.010] * 95 + [40.0] * 5
    row = JobStatFactory.create(run_histogram=histogram(times), done=100)
    JobStatFactory.create(task_path="shop.tasks.empty", done=0)
    listing = body(viewer, url("changelist", model="jobstat"))
    for page in (listing, body(viewer, url("change", row.pk, model="jobstat"))):
        for text in ("12 ms", "16 ms", "59 s"):
            assert text in page
    assert '<td class="field-ran">-</td>' in listing
    assert len(listed(viewer, url("changelist", model="jobstat"), task="shop.tasks.empty")) == 1


@pytest.mark.django_db
def test_the_list_has_a_cell_for_all_counts_and_one_for_each_kind_of_time(root: Client) -> None:
    times = histogram([0.010] * 95 + [40.0] * 5)
    JobStatFactory.create(
        done=1180, failed=0, retried=17, cancelled=1, wait_histogram=times, run_histogram=times
    )
    page = body(root, url("changelist", model="jobstat")).split('id="result_list"')[1]
    shares = "".join(
        f'<span class="pgqueue-share">{text}</span>' for text in ("p50 12 ms", "p95 16 ms", "p99 59 s")
    )
    assert f'<td class="field-waited">{shares}</td>' in page
    assert f'<td class="field-ran">{shares}</td>' in page
    counts = '1,180\xa0done<span class="pgqueue-more">17\xa0retried, 1\xa0cancelled</span>'
    assert f'<td class="field-attempts">{counts}</td>' in page
    assert page.count('<th scope="col"') == 6
