"""django-unfold."""

from __future__ import annotations

from tests.browser.themes.plain import *  # noqa: F403
from tests.browser.themes.plain import INSTALLED_APPS as PLAIN

INSTALLED_APPS = ["unfold", *PLAIN]
