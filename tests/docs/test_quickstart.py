"""The quickstart, as commands, on a database of its own."""

from __future__ import annotations

import re

from django.core.management import get_commands

from .shop import DOCS, EXAMPLES, manage

ADMIN = """
from django.contrib.auth.models import User
from django.test import Client
browser = Client(SERVER_NAME="localhost")
browser.force_login(User.objects.create_superuser("ann"))
jobs = browser.get("/admin/django_pgqueue/job/")
print("admin", jobs.status_code, jobs.content.decode().count("shop.tasks.send_receipt") > 0)
page = browser.get(f"/admin/django_pgqueue/job/{job.pk}/change/").content.decode()
print("page", "DoesNotExist" in page, "Traceback" in page)
"""


def script(*names: str) -> str:
    return "\n".join((EXAMPLES / f"{name}.py").read_text() for name in names)


def test_the_quickstart(quickstart: dict[str, str]) -> None:
    page = (DOCS / "tutorial" / "quickstart.md").read_text()
    assert "shop.tests" not in page
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    said = manage(quickstart, "shell", "--command", script("first_order"))
    assert "pending" in said
    banner = manage(quickstart, "runqueueworker", "--burst")
    for label in ("Database", "Queues", "Processes", "Tasks", "Settings", "Admin"):
        (line,) = re.findall(rf"^  {label}: .*", page, re.MULTILINE)
        assert label == "Database" or f"{line}\n" in banner
    assert ' (alias "default")\n' in banner
    said = manage(quickstart, "shell", "--command", script("look", "failing_order"))
    assert promised(page, "done") in said
    manage(quickstart, "runqueueworker", "--burst")
    said = manage(quickstart, "shell", "--command", script("look_at_failure") + ADMIN)
    assert promised(page, "retry") in said
    assert "admin 200 True" in said
    assert "page True True" in said


def promised(page: str, word: str) -> str:
    """What the page says that a script prints."""
    (line,) = re.findall(rf"This prints `({word} [^`]+)`", page)
    return str(line)


def test_the_commands_of_the_quickstart_exist() -> None:
    page = (DOCS / "tutorial" / "quickstart.md").read_text()
    used = set(re.findall(r"^python manage\.py (\S+)", page, re.MULTILINE))
    assert {"migrate", "runqueueworker", "runserver"} <= used <= {*get_commands()}
