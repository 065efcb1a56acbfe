"""The steps of a job on its page."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models.job import Step
from tests.support.factories import JobFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db

STEP = {
    "name": "render",
    "kind": "step",
    "attempt": 2,
    "seconds": 1.5,
    "wake_at": None,
    "finished_at": "2026-11-23T07:08:09.123+00:00",
    "result": "<b>done</b>",
}


def steps_on(client: Client, pk: int) -> str:
    page = body(client, url("change", pk))
    return page.split('id="pgqueue-steps"')[1].split("</section>")[0] if "pgqueue-steps" in page else ""


def test_the_steps_of_a_job_that_is_over_come_from_its_row(root: Client) -> None:
    shown = steps_on(root, JobFactory.create(failed=True, steps=[STEP]).pk)
    for text in ("render", "<td>2</td>", "1.5 s", "2026-11-23 07:08:09", "&lt;b&gt;done&lt;/b&gt;"):
        assert text in shown


def test_the_steps_of_a_live_job_come_from_their_table(root: Client) -> None:
    job = JobFactory.create(marks=1)
    Step.objects.create(job_id=job.pk, name="approved", kind="event")
    shown = steps_on(root, job.pk)
    assert "approved" in shown
    assert "waits" in shown


def test_each_region_of_the_page_has_a_name_of_its_own(root: Client) -> None:
    """A section with the name of the region in it would be a second landmark of that name."""
    page = body(root, url("change", JobFactory.create(failed=True, steps=[STEP]).pk))
    names = re.findall(r'aria-labelledby="(pgqueue-[^"]*)"', page)
    assert "pgqueue-steps" in names
    assert len(names) == len(set(names))


def test_a_job_without_steps_has_no_table(root: Client) -> None:
    assert steps_on(root, JobFactory.create().pk) == ""
    assert steps_on(root, JobFactory.create(done=True).pk) == ""


def test_odd_values_in_history_do_not_break_the_page(root: Client) -> None:
    odd = [{"name": "<i>x</i>", "finished_at": "odd"}, {"kind": "sleep", "wake_at": STEP["finished_at"]}]
    shown = steps_on(root, JobFactory.create(done=True, steps=odd).pk)
    assert "&lt;i&gt;" in shown
    assert re.search(r"until <time [^>]*>2026-11-23 07:08:09</time>", shown)


def test_a_job_that_waits_for_a_signal_is_not_due_in_a_century(root: Client) -> None:
    job = JobFactory.create(marks=1, run_after=timezone.now() + timedelta(seconds=3.1e9))
    page = body(root, url("change", job.pk))
    assert "waiting for" in page
    assert "run after" not in page
