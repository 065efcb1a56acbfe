"""Helpers for the tests of the admin: jobs in each state, users, requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from html import unescape
from itertools import count
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import connections
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import URLPattern, reverse
from django.utils import timezone

from django_pgqueue import enqueue, pause, set_limit
from django_pgqueue.models import FailureGroup, Job, JobBatch, Queue, Schedule
from tests.app.tasks import noop
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, ScheduleFactory, WorkerFactory
from tests.support.figures import failure
from tests.support.schedules import declare
from tests.support.wording import shown

_NUMBERS = count(1)  # of users
LIST = "/admin/django_pgqueue/job/"
#: The classes of the pages of the queue, by the names of their models.
ADMINS: dict[str, Any] = {
    str(model._meta.model_name): model_admin
    for model, model_admin in admin.site._registry.items()
    if model._meta.app_label == "django_pgqueue"
}
#: The models of the lists that need no page.
LISTS = {f"/admin/django_pgqueue/{model._meta.model_name}/": model for model in (Job, Queue, Schedule)}
STATES: dict[str, dict[str, Any]] = {
    "pending": {},
    "retry": {"retrying": True},
    "running": {"running": True},
    "blocked": {"status": "blocked", "waiting_reason": "at most 2 at once"},
    "done": {"done": True},
    "failed": {"failed": True},
    "cancelled": {"cancelled": True},
}


def staff(*permissions: str) -> Client:
    """Return the client of a staff user who has exactly these permissions."""
    user = User.objects.create_user(f"staff {next(_NUMBERS)}", is_staff=True)
    found = Permission.objects.filter(content_type__app_label="django_pgqueue", codename__in=permissions)
    held = User.user_permissions.through
    made = held._default_manager.bulk_create(held(user=user, permission=each) for each in found)
    assert len(made) == len(permissions)
    client = Client()
    client.force_login(user)
    return client


def url(page: str, *arguments: Any, model: str = "job") -> str:
    return reverse(f"admin:django_pgqueue_{model}_{page}", args=arguments)


def body(client: Client, address: str, **query: Any) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return response.content.decode()


#: A time on a page, of which the date is left out if it is that of the time before.
TIME = re.compile(r"(20\d\d-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d+)?")


def read(client: Client, address: str, **query: Any) -> str:
    """Return what a user reads on a page, for ``wording``."""
    return TIME.sub("<time>", shown(body(client, address, **query)))


def rows_of(page: str) -> str:
    """Return what a user reads in the rows of a list."""
    rows = page.split("<tbody>")[1].split("</tbody>")[0]
    return shown(f'<div id="content">{rows}</div>')


def hidden_fields(html: str) -> dict[str, Any]:
    """Return the hidden fields of a form."""
    fields: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html):
        fields.setdefault(unescape(name), []).append(unescape(value))
    return fields


def chosen_links(page: str) -> list[str]:
    """Return what is chosen in each filter of a list, in their order."""
    found = re.findall(r'<li class="selected">\s*<a[^>]*>(.*?)</a>', page)
    return [re.sub("<.*?>", "", text) for text in found]


def pages_of(model_admin: Any, **values: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the URL of each page of an admin class, so that a new page is tested, too."""
    for pattern in model_admin.get_urls():
        if isinstance(pattern, URLPattern) and pattern.name:
            given = {name: values[name] for name in pattern.pattern.converters}
            yield (
                pattern.name.removeprefix("django_pgqueue_"),
                reverse(f"admin:{pattern.name}", kwargs=given),
            )


def seen(client: Client, address: str, part: str = "content", **query: Any) -> str:
    """Return what a reader sees of a page, or of its element with the id `part`, without what passes."""
    return words(body(client, address, **query), part)


def words(html: str, part: str = "content") -> str:
    """Return what a reader sees of the element with this id, or of HTML without it."""
    if part != "content":
        html = html.replace('id="content"', "").replace(f'id="{part}"', 'id="content"')
    elif 'id="content"' not in html:
        html = f'<div id="content">{html}</div>'
    return steady(shown(html.replace('class="pgqueue-more">', 'class="pgqueue-more"> ')))  # a line of its own


def steady(text: str) -> str:
    """Return a text with names for what the time and the ids of rows change."""
    for pattern, name in (
        (r"\d[\d.,]* jobs/(s|min)", "<rate>"),
        (r"\b\d s ago", "<now> ago"),
        (r"\bin \d+ (d|h|min|s)\b( \d+ (h|min|s))?", "in <span>"),
        (r"/pause/\d+/", "/pause/<id>/"),
        (r"_selected_action=\d+", "_selected_action=<id>"),
        (r"20[2-9]\d-\d\d-\d\d \d\d:\d\d:\d\d", "<time>"),
    ):
        text = re.sub(pattern, name, text)
    return text


def opened(client: Client | None = None, model: type[Model] = Job, /, **query: Any) -> Any:
    """Return a list as the user of a client opens it, or a superuser, without its page."""
    return admin.site.get_model_admin(model).get_changelist_instance(_request_of(client, **query))


def offered(client: Client, kind: str) -> Any:
    """Return the actions that a list offers to the user of a client, by their names."""
    return ADMINS[kind].get_actions(_request_of(client))


def _request_of(client: Client | None, **query: Any) -> Any:
    request: Any = RequestFactory().get(LIST, query)
    request.user = User(is_superuser=True, is_active=True)
    if client is not None:
        request.user = User.objects.get(pk=client.session["_auth_user_id"])
    return request


def listed(client: Client, address: str = LIST, /, **query: Any) -> list[Any]:
    """Return the ids on a list, from the top."""
    model = LISTS.get(address)
    if model is not None:
        return [row.pk for row in opened(client, model, **query).result_list]
    response = client.get(address, query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def post(client: Client, address: str, **data: Any) -> tuple[str, str]:
    """Send a POST, and return the message and its level."""
    client.cookies.pop("messages", None)  # remove the message of an earlier page that was not read
    response = client.post(address, data)
    assert response.status_code == 302
    [message] = get_messages(response.wsgi_request)
    return message.message, message.level_tag


def act(client: Client, action: str, job: Job) -> tuple[str, str]:
    """Run an action of the list on one job."""
    return post(client, url("changelist"), action=action, _selected_action=[job.pk], index=0)


def ask(client: Client, action: str, *jobs: Job, query: str = "", across: bool = False) -> Page:
    """Run an action of the list on these jobs, and return the page that asks for confirmation.

    With ``across``, the action is for all jobs that match the query.
    """
    data = {"action": action, "_selected_action": [job.pk for job in jobs], "select_across": int(across)}
    return press(client, f"{url('changelist')}?{query}", **data, index=0)


def press(client: Client, address: str, **data: Any) -> Page:
    """Send a POST, and return the page that asks for confirmation."""
    response = client.post(address, data)
    assert response.status_code == 200
    return Page(address, response.content.decode())


def statuses(*jobs: Job) -> list[str]:
    found = dict(Job.objects.values_list("pk", "status"))
    return [found[job.pk] for job in jobs]


@dataclass
class Page:
    """A page that asks for confirmation."""

    address: str
    html: str

    @property
    def content(self) -> str:
        """The part of the page from below the title to the end of the form."""
        return self.html.split('class="pgqueue-confirm"')[1].split("</form>")[0]

    @property
    def offers_to_act(self) -> bool:
        """Whether the page has a button."""
        return 'type="submit"' in self.content

    @property
    def sentences(self) -> list[str]:
        """The sentences that say what would happen."""
        return re.findall(r"<li[^>]*>([^<]+)</li>", self.content)

    @property
    def fields(self) -> dict[str, Any]:
        """The hidden fields of the form."""
        return hidden_fields(self.content)

    def confirm(self, client: Client) -> tuple[str, str]:
        """Press the button."""
        assert self.offers_to_act
        return post(client, self.address, **self.fields)


def confirm(client: Client, address: str, **data: Any) -> tuple[list[str], tuple[str, str]]:
    """Send a POST that shows the page of ``admin/ask.py``, and confirm it. Return what the page said would
    happen to each row, and the message.
    """
    page = press(client, address, **data)
    effects = [re.sub(r"<[^>]+>", "", each) for each in re.findall(r"<li[^>]*>(.*?)</li>", page.content)]
    return effects, page.confirm(client)


def drawing_of(page: str) -> dict[str, Any]:
    """Return the JSON from which a page draws its workflow."""
    text = page.split('<script id="pgqueue-workflow-data" type="application/json">')[1].split("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


_TABLES = """
    SELECT relname FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace
    WHERE nspname = current_schema() AND relkind = 'r'
        AND (relname LIKE 'pgqueue%' OR relname = 'django_admin_log')
"""


def stored(alias: str = "default", *, history: bool = True) -> dict[str, Any]:
    """Return what the tables of the queue and the history of the admin contain, as checksums."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_TABLES)
        names = sorted(name for (name,) in cursor.fetchall() if history or name != "django_admin_log")
        parts = [f"SELECT '{name}', count(*), sum(hashtext(t::text)) FROM {name} AS t" for name in names]
        cursor.execute(" UNION ALL ".join(parts))
        return {name: rest for name, *rest in cursor.fetchall()}


# --- What users change


def batch() -> JobBatch:
    made: JobBatch = BatchFactory.create()
    JobFactory.create(batch_id=made.pk, failed=True)
    return made


def failures() -> FailureGroup:
    failure()
    return FailureGroup.objects.get()


def late() -> Job:
    return JobFactory.create(running=True, deadline=timezone.now() + timedelta(minutes=1))


failed = partial(JobFactory.create, failed=True)
scheduled = partial(JobFactory.create, scheduled=True)
paused = partial(pause, queue="mail")
limited = partial(set_limit, name="acme", concurrency=1)
queue = partial(QueueFactory.create, name="mail")
QUEUE = {"retention": "", "failed_retention": "", "backoff_base": "5", "backoff_ceiling": ""}
LIMIT = {"concurrency": "3", "rate": "", "per": "", "burst": "", "on_full": "wait"}
SCHEDULE = {
    "name": "nightly", "task_path": "tests.app.tasks.noop", "args": "[]", "kwargs": "{}", "queue_name": "",
    "priority": "0", "cron": "* * * * *", "timezone": "UTC", "jitter": "0", "catch_up": "all",
    "catch_up_limit": "5", "overlap": "skip",
}  # fmt: skip
DELETE = {"post": "yes"}
#: What it is, the model, the row (made by a function), the page, what is sent, and what is in the history, if
#: that is one entry.
CHANGES: dict[str, tuple[str, Any, str, dict[str, Any], Any]] = {
    "retry a job": ("job", failed, "retry", {}, "Action: Retry."),
    "retry all jobs": ("job", failed, "changelist", {"action": "retry_jobs", "select_across": 1, "index": 0},
                       None),
    "run a job now": ("job", scheduled, "run_now", {}, "Action: Run now."),
    "cancel a job": ("job", scheduled, "cancel", {}, "Action: Cancel."),
    "give a job more time": ("job", late, "extend", {}, "Action: Give it one more hour."),
    "edit a job": ("job", scheduled, "edit", {"priority": "7"}, "Action: Edit (Priority: 7)."),
    "copy a job": ("job", lambda: enqueue(noop), "clone", {"args": "[]", "kwargs": "{}"}, None),
    "mute failures": ("job", failures, "failure_mute", {"action": "mute"}, None),
    "pause on the overview": ("job", None, "overview", {"button": "pause", "queue": "mail"}, None),
    "resume on the overview": ("job", paused, "overview", {"button": "resume", "queue": "mail"}, None),
    "retry a batch": ("jobbatch", batch, "retry", {}, "Action: Retry failed jobs."),
    "cancel a batch": ("jobbatch", batch, "cancel", {}, "Action: Cancel batch."),
    "replace a process": ("worker", WorkerFactory.create, "replace", {}, "Action: Replace this process."),
    "stop a worker": ("worker", WorkerFactory.create, "stop", {},
                      "Action: Stop this worker (all processes)."),
    "pause": ("pause", None, "add", {"kind": "queue", "name": "mail", "reason": "a test"}, "Added."),
    "change a pause": ("pause", paused, "change", {"reason": "still down"}, "Changed Reason."),
    "resume": ("pause", paused, "resume", {}, "Resumed."),
    "add a queue": ("queue", None, "add", {"name": "mail", **QUEUE}, "Added."),
    "change a queue": ("queue", queue, "change", QUEUE, "Changed First wait before a retry, in seconds."),
    "delete a queue": ("queue", queue, "delete", DELETE, ""),
    "add a limit": ("limit", None, "add", {"name": "acme", **LIMIT}, "Added."),
    "change a limit": ("limit", limited, "change", LIMIT, "Changed Jobs at once."),
    "delete a limit": ("limit", limited, "delete", DELETE, ""),
    "add a schedule": ("schedule", None, "add", SCHEDULE, "Added."),
    "change a schedule": ("schedule", ScheduleFactory.create, "change", {**SCHEDULE, "cron": "5 5 * * *"},
                          None),
    "pause a schedule": ("schedule", ScheduleFactory.create, "pause", {"reason": "a bug"},
                         "Action: Pause. Reason: a bug"),
    "resume a schedule": ("schedule", lambda: ScheduleFactory.create(paused_at=timezone.now()), "resume", {},
                          "Action: Resume."),
    "run a schedule": ("schedule", ScheduleFactory.create, "enqueue", {}, "Action: Run now."),
    "restore a schedule": ("schedule", lambda: declare("nightly", priority=5), "restore", {}, None),
    "delete a schedule": ("schedule", ScheduleFactory.create, "delete", DELETE, ""),
}  # fmt: skip
