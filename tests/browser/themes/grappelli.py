"""django-grappelli; ``tests.urls`` has its URLs."""

from __future__ import annotations

from tests.browser.themes.plain import *  # noqa: F403
from tests.browser.themes.plain import INSTALLED_APPS as PLAIN

INSTALLED_APPS = ["grappelli", *PLAIN]
