"""The folder of uploaded files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings


@pytest.fixture(scope="session")
def media() -> Iterator[None]:
    """Empty the folder before and after the tests."""
    shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)
    Path(settings.MEDIA_ROOT).mkdir(parents=True)
    yield
    shutil.rmtree(settings.MEDIA_ROOT)
