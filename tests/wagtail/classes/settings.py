"""The settings. ``DJANGO_CONFIGURATION`` names the class."""

from __future__ import annotations

import json
import os

from configurations import Configuration, values

from tests.settings import DATABASES as THEIRS


class Base(Configuration):  # type: ignore[misc]
    SECRET_KEY = "only for tests"
    INSTALLED_APPS = ["django_pgqueue", "tests.wagtail.classes"]
    DATABASES = json.loads(os.environ.get("TEST_DATABASES", "null")) or THEIRS
    USE_TZ = True


class Dev(Base):
    TIME_ZONE = values.Value("UTC")


class Prod(Base):
    TIME_ZONE = values.Value("Europe/Paris")
