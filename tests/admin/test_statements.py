"""How many statements each page of the console sends: at a millisecond of network, they are the page."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from example_project.demo.shop.seed import seed
from tests.browser.addresses import NAMES, address

MOST = 25
#: Pages of Django, to which this package adds nothing.
DJANGO = ("_history", "_delete")
#: It examines everything, when a user asks for it.
DOCTOR = "jobstat_database_doctor"


@pytest.mark.django_db
def test_each_page_sends_few_statements(root: Client) -> None:
    seed("default", 300)  # a page with rows of each kind sends the most
    sent = {}
    for name in NAMES:
        path = address(name)
        with CaptureQueriesContext(connection) as captured:
            response = root.get(path)
        if response.status_code == 200 and not name.endswith((*DJANGO, DOCTOR)):
            sent[name] = len(captured)
    assert sent["job_overview"] > 10
    assert {name: count for name, count in sent.items() if count > MOST} == {}
