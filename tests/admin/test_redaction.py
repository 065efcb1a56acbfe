"""The admin shows arguments and results redacted, only to those who may see them. Nobody finds by a search
what is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings

from django_pgqueue.admin.display import load_cut
from django_pgqueue.admin.jobs.search import search, shows
from django_pgqueue.admin.lists import NamesInUse
from django_pgqueue.models import Job, JobProgress, Schedule
from django_pgqueue.monitoring.failures import groups
from django_pgqueue.monitoring.spans import DAY
from django_pgqueue.redaction import REDACTED, redact
from tests.app import secret_tasks as tasks
from tests.receipts.models import Order, Receipt
from tests.support.factories import ERROR, JobFactory, ScheduleFactory
from tests.support.figures import failure

from .helpers import body, listed, staff, url

pytestmark = pytest.mark.django_db

SIGN_IN = tasks.sign_in.module_path
CARD = "4111-1111-1111-1111"
BY_CARD = {"REDACT": [r"re:\d{4}(-\d{4}){3}"]}
RESULT = {"token": "hunter2", "n": "seen"}
STEP = {"name": "ask", "kind": "step", "attempt": 1, "seconds": 1, "result": RESULT}


def secret(**more: Any) -> Job:
    """Return a done job in whose every place is a secret."""
    return JobFactory.create(
        **{
            "task_path": SIGN_IN, "args": ["ann", "hunter2"], "kwargs": {"api_key": "hunter2", "n": "seen"},
            "done": True, "result": {"user": "seen", "accessToken": "hunter2"}, "steps": [STEP],
            "metadata": {"token": "hunter2"}, "context": {"cookie": "hunter2"}, **more,
        }
    )  # fmt: skip


@pytest.mark.promise("redaction-everywhere")
def test_the_list_and_the_page_show_no_secret(root: Client) -> None:
    job = secret()
    on_list, on_page = body(root, url("changelist")), body(root, url("change", job.pk))
    assert f"&quot;ann&quot;, &quot;{REDACTED}&quot;, n=&quot;seen&quot;, api_key=" in on_list
    assert "hunter2" not in on_list + on_page
    assert on_page.count(REDACTED) == 6 + 2  # two in the panel of the task
    job.refresh_from_db()
    assert job.args == ["ann", "hunter2"]


@pytest.mark.parametrize(("rules", "shown"), [({}, "html=&quot;&lt;p&gt;"), (BY_CARD, "…")])
def test_arguments_that_are_read_only_in_part(root: Client, rules: Any, shown: str) -> None:
    secret(args=["ann"], kwargs={"html": "<p>" * 200, "note": "x", "password": "hunter2" * 100})
    with override_settings(PGQUEUE=rules):
        cell = re.findall(r'field-call">(.*?)</td>', body(root, url("changelist")))[0]
    assert shown in cell
    assert "hunter2" not in cell
    assert ("ann" in cell) == (not rules)  # a pattern cannot tell what it would find in the rest


def test_the_beginning_of_json_is_read_wherever_it_was_cut() -> None:
    text = '[1, {"a": "say \\"hi\\" \\u00e4", "b": [1, {"c": null}]}, "x, [1"]'
    whole = json.loads(text)
    for length in range(1, len(text) + 1):
        found, is_cut = load_cut(text[:length], "]")
        assert is_cut == (length < len(text)), length
        assert all(value == whole[place] for place, value in enumerate(found[:1])), length
        if len(found) > 1:
            assert found[1].keys() <= {"a", "b"}, length
            assert found[1].get("a", "…").removesuffix("…") in whole[1]["a"], length


TEXT = f"card {CARD} is refused"


def in_an_error_and_a_log() -> list[str]:
    line = {"at": "2026-01-01T00:00:00Z", "level": "INFO", "logger": "x", "message": TEXT}
    error = {**ERROR, "message": TEXT, "traceback": TEXT, "progress": {"done": 1, "note": TEXT}}
    job = secret(done=False, failed=True, errors=[error], logs=[{"attempt": 1, "lines": [line]}])
    return [url("change", job.pk)]


def in_a_reason() -> list[str]:
    job = JobFactory.create(status="blocked", waiting_reason=TEXT)
    JobFactory.create(parents=[job])
    return [url("changelist"), url("change", job.pk), url("workflow", job.pk)]


def in_progress() -> list[str]:
    job = JobFactory.create(task_path=SIGN_IN, running=True, marks=8)
    JobProgress.objects.create(job=job, done=1, note=TEXT)
    return [f"{url('progress')}?keys={job.pk}"]


def in_failures() -> list[str]:
    failure(message=TEXT, traceback=f"Down: {TEXT}")
    return [url("failures"), url("failure", "f")]


@pytest.mark.parametrize("place", [in_an_error_and_a_log, in_a_reason, in_progress, in_failures])
def test_patterns_are_about_texts_too(place: Callable[[], list[str]], root: Client) -> None:
    first, *others = place()
    assert CARD in body(root, first)
    with override_settings(PGQUEUE=BY_CARD):
        for shown in (body(root, page) for page in (first, *others)):
            assert CARD not in shown
            assert f"card {REDACTED} is refused" in shown


def test_fields_of_a_payload_have_names(root: Client) -> None:
    row = Receipt.objects.create(order=Order.objects.create(pk=17), email="a@b.c")
    with override_settings(PGQUEUE={"REDACT": ["email"]}):
        shown = body(root, url("change", row.pk))
    assert "a@b.c" not in shown
    assert f"<td>{REDACTED}</td>" in shown
    assert "<td>17</td>" in shown


def found(client: Client, term: str) -> bool:
    return bool(listed(client, q=term))


@pytest.mark.promise("redaction-search")
def test_a_search_finds_nothing_that_is_redacted(root: Client) -> None:
    secret()
    # Without a redacted key, the whole text is searched.
    assert all(found(root, term) for term in ("ann", "seen", "api_k"))
    for term in ("hunter2", "hunt", "unter", '"hunter2"', '"api_key": "h', '", "hunt', "{"):
        assert not found(root, term), term
    JobFactory.create(args=["Hunter2"])
    assert found(root, "hunter2")


def test_python_and_the_database_compare_names_alike(root: Client) -> None:
    kwargs = {"a": [{"oldPassword": ["hunter2", 5], "old-passWord": ["spring7", 5]}]}
    secret(args=[], kwargs=kwargs)
    for name, text, hidden in (
        ("password", "hunter2", True), ("user", "hunter2", False), ("n", "hunter2", False),
        ("Pass_Word", "spring7", True),
    ):  # fmt: skip
        with override_settings(PGQUEUE={"REDACT": [name]}):
            assert (found(root, text), text in str(redact(kwargs))) == (not hidden, not hidden)


def test_further_positional_arguments_are_not_found_either(root: Client) -> None:
    secret(task_path=tasks.many.module_path, args=["ann", "hunter2", "hunter3"], kwargs={})
    with override_settings(PGQUEUE={"REDACT": ["tokens"]}):
        assert found(root, "ann")
        assert not found(root, "hunter")
    assert found(root, "hunter3")


def test_arguments_of_a_task_that_nobody_knows_are_not_searched(root: Client) -> None:
    """Nobody knows which of them are redacted. Keyword arguments have names."""
    secret(task_path="gone.tasks.sign_in", args=["ann"], kwargs={"seen": "yes"})
    assert not any(found(root, term) for term in ("ann", "args.0=ann"))
    assert all(found(root, term) for term in ("seen", "kwargs.seen=yes"))


def test_with_patterns_nothing_is_searched_that_they_may_redact(root: Client) -> None:
    error = {**ERROR, "class": "GatewayDown", "message": f"card {CARD}"}
    job = secret(done=False, failed=True, errors=[error])
    with override_settings(PGQUEUE=BY_CARD):
        assert not any(found(root, term) for term in ("ann", "seen", CARD, "card"))
        assert listed(root, q="gatewayd") == listed(root, q="sign_in") == [job.pk]


def test_a_place_in_the_arguments_is_found_only_as_far_as_it_is_shown(root: Client) -> None:
    kwargs = {"a": {"name": "ann", "apiKey": "k7", "secrets": [{"x": "k8"}]}}
    job = secret(args=["ann", "hunter2"], kwargs=kwargs)
    assert listed(root, q="args.0=ann") == listed(root, q="kwargs.a.name=ann") == [job.pk]
    terms = ("args.1=hunter2", "kwargs.a.apiKey=k7", "kwargs.a.secrets.0.x=k8")
    for term in (*terms, f"kwargs.a={json.dumps(kwargs['a'])}"):
        assert not found(root, term), term
    assert not found(staff("view_job"), "kwargs.a.name=ann")
    with override_settings(PGQUEUE={"REDACT": ["user"]}):
        assert not found(root, "args.0=ann"), "the parameter has this name"
        assert found(root, "args.1=hunter2")
    with override_settings(PGQUEUE=BY_CARD):
        assert not found(root, "kwargs.a.name=ann")


def test_an_order_for_a_place_finds_nothing_without_the_permission() -> None:
    """Race: the user loses it between the confirmation and the job that carries the order out."""
    secret(done=True)
    jobs = Job.objects.all()
    for full, number in ((True, 1), (False, 0)):
        found = search(
            jobs, "args.0=ann", "", full=full, meaning="path", now=Now(), names=NamesInUse("default")
        )
        assert found.count() == number


@pytest.mark.promise("arguments-need-permission")
def test_without_the_permission_arguments_and_messages_are_not_searched() -> None:
    job = secret(done=False, failed=True, errors=[{**ERROR, "class": "GatewayDown", "message": "to ann"}])
    viewer = staff("view_job", "retry_job")
    assert not any(found(viewer, term) for term in ("ann", "seen", "to ann"))
    assert listed(viewer, q="gatewayd") == listed(viewer, q="sign_in") == [job.pk]
    # An action on all that match says how many there are.
    data = {"action": "retry_jobs", "_selected_action": [job.pk], "select_across": 1, "index": 0}
    assert "no job" in str(viewer.post(f"{url('changelist')}?q=seen", data, follow=True).content).lower()


@pytest.mark.promise("redaction-search")
def test_no_filter_in_the_address_finds_what_is_not_shown(root: Client) -> None:
    secret()
    for model, lookups in {
        "job": [
            "kwargs__api_key__startswith", "args__1", "result__accessToken", "errors__0__message__contains",
            "waiting_reason__contains", "steps__isnull", "live_progress__note",
        ],
        "schedule": ["kwargs__api_key__startswith", "declared__kwargs__isnull"],
    }.items():  # fmt: skip
        for client in (root, staff(f"view_{model}")):
            for lookup in lookups:
                address = url("changelist", model=model)
                response = client.get(address, {lookup: "hunter2"})
                answer = response.status_code, response.get("Location", "")
                assert answer in ((400, ""), (302, f"{address}?")), lookup


def test_filters_of_the_list_may_be_in_the_address(root: Client, schedule: Schedule) -> None:
    job = secret()
    assert listed(root, status="done", task=SIGN_IN, pk__in=job.pk) == listed(root, id=job.pk) == [job.pk]
    response = root.get(url("changelist", model="schedule"), {"source__exact": "admin", "state": "active"})
    assert [row.pk for row in response.context["cl"].result_list] == ["nightly"]


@pytest.fixture
def schedule() -> Schedule:
    return ScheduleFactory.create(
        name="nightly", task_path=SIGN_IN, args=["ann", "hunter2"], kwargs={"api_key": "k-1"}
    )


def test_schedules_are_redacted_wherever_they_are_shown(schedule: Schedule) -> None:
    viewer = staff("view_schedule", "view_arguments_job")
    editor = staff("view_schedule", "view_arguments_job", "change_schedule", "enqueue_schedule")
    of_list, *pages = [url("changelist", model="schedule"), url("change", "nightly", model="schedule")]
    asked = editor.post(url("enqueue", "nightly", model="schedule")).content.decode()
    for page in (body(viewer, of_list), *(body(each, *pages) for each in (viewer, editor)), asked):
        assert "hunter2" not in page
        assert "k-1" not in page
        assert REDACTED in page


def test_who_may_not_view_arguments_sees_none_of_a_schedule_that_is_to_run_or_to_be_restored() -> None:
    """Nor on its pages: `test_access`."""
    ScheduleFactory.create(
        name="nightly", task_path=SIGN_IN, args=["zanzibar", "x"], kwargs={"to": "zanzibar"},
        overridden=["args", "kwargs"], declared={"args": ["zanzibar"], "kwargs": {}},
    )  # fmt: skip
    may_act = ("view_schedule", "change_schedule", "pause_schedule", "enqueue_schedule")
    client, seeing = staff(*may_act), staff(*may_act, "view_arguments_job")
    for name in ("enqueue", "restore"):
        address = url(name, "nightly", model="schedule")
        shown, seen = (each.post(address).content.decode() for each in (client, seeing))
        assert ("zanzibar" in shown, "zanzibar" in seen) == (False, True)
        assert name == "restore" or SIGN_IN in shown.replace("<wbr>", "")


NIGHTLY = "/admin/django_pgqueue/schedule/nightly/change/"


def filled(client: Client, **changes: str) -> dict[str, Any]:
    """Return what the form of the schedule sends."""
    form = client.get(NIGHTLY).context["adminform"].form
    shown = {name: form.initial.get(name) for name in form.fields}
    return {name: value for name, value in shown.items() if value is not None} | changes


def test_who_may_not_view_the_arguments_of_a_schedule_does_not_change_them(schedule: Schedule) -> None:
    client = staff("view_schedule", "change_schedule")
    given = filled(client, args="[]", kwargs="{}")
    assert client.post(NIGHTLY, {**given, "priority": "7"}).status_code == 302
    schedule.refresh_from_db()
    assert (schedule.args, schedule.kwargs) == (["ann", "hunter2"], {"api_key": "k-1"})
    assert schedule.priority == 7
    page = client.post(NIGHTLY, {**given, "task_path": "tests.app.tasks.mail"}).content.decode()
    assert "The task does not take the arguments of this schedule." in page
    assert "api_key" not in page


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        (["bob", REDACTED], {"api_key": REDACTED}, (["bob", "hunter2"], {"api_key": "k-1"})),
        (["ann", "new"], {"api_key": REDACTED}, (["ann", "new"], {"api_key": "k-1"})),
        (["ann", REDACTED], {}, (["ann", "hunter2"], {})),
        ([REDACTED], {"api_key": REDACTED}, None),
    ],
)
@pytest.mark.promise("redaction-forms")
def test_a_form_keeps_the_values_that_it_does_not_show(
    root: Client, schedule: Schedule, args: Any, kwargs: Any, stored: Any
) -> None:
    response = root.post(NIGHTLY, filled(root, args=json.dumps(args), kwargs=json.dumps(kwargs)))
    schedule.refresh_from_db()
    if stored is None:
        assert "Replace each" in response.content.decode()
        assert schedule.args == ["ann", "hunter2"]
    else:
        assert response.status_code == 302
        assert (schedule.args, schedule.kwargs) == stored


def test_a_search_reads_a_value_part_by_part_only_if_its_text_matches() -> None:
    """Most jobs do not match, and a search reads many of them."""
    sql = shows("kwargs", "x", NamesInUse("default")).sql
    assert sql.index("NOT upper") < sql.index("jsonb_path_exists") < sql.index("_pgqueue_shows")


def test_a_message_that_was_cut_when_it_was_stored_is_not_shown() -> None:
    """A part of what the pattern is to find may be left of it."""
    failure(message=f"{'x' * 490} {CARD}"[:500], traceback="Down")
    with override_settings(PGQUEUE=BY_CARD):
        [group] = groups("default", DAY)
    assert group.message == ""
