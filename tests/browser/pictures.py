"""Draw the pictures of the docs and of the README: ``python3 dev.py screenshots``.

Each page is drawn in light and dark, with the data of the demonstration, as WebP.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .hands import address

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "_static" / "console"
QUALITY = 75
TALLEST = 1000
MOST = 150_000  # bytes
#: The name of each picture, and of the page.
PICTURES = {
    "overview": "job_overview",
    "jobs": "job_changelist",
    "job": "job_change",
    "failures": "job_failures",
    "failure": "job_failure",
    "queues": "queue_changelist",
    "queue": "queue_change",
    "workers": "worker_changelist",
    "worker": "worker_change",
    "tasks": "jobstat_changelist",
    "task": "jobstat_task",
    "database": "jobstat_database",
    "batches": "jobbatch_changelist",
    "workflow": "jobbatch_workflow",
    "schedules": "schedule_changelist",
    "schedule": "schedule_change",
    "limits": "limit_changelist",
    "pauses": "pause_changelist",
}


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("name", PICTURES)
def test_draw(name: str, look: str, window: Open) -> None:
    page = window(look)
    # The list of all models at the side has nothing to do with this package.
    page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    page.goto(address(PICTURES[name]), wait_until="networkidle")
    height = page.evaluate("Math.ceil(document.querySelector('#content').getBoundingClientRect().bottom)")
    page.set_viewport_size({"width": 1280, "height": max(400, min(TALLEST, height + 20))})
    page.wait_for_timeout(300)  # the charts are drawn anew
    shot = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot", {"format": "webp", "quality": QUALITY}
    )
    picture = base64.b64decode(shot["data"])
    assert len(picture) < MOST
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}{'-dark' if look == 'dark' else ''}.webp").write_bytes(picture)
