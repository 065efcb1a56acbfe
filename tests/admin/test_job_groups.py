"""The group of a job on its page."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support.factories import JobFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db


def test_the_page_shows_the_group_if_the_job_has_one(root: Client) -> None:
    assert "tiny shop" in body(root, url("change", JobFactory.create(group_key="tiny shop").pk))
    assert "field-group_key" not in body(root, url("change", JobFactory.create().pk))
