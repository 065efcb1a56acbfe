"""django-jazzmin, in the dark if the browser asks for it."""

from __future__ import annotations

from tests.browser.themes.plain import *  # noqa: F403
from tests.browser.themes.plain import INSTALLED_APPS as PLAIN

INSTALLED_APPS = ["jazzmin", *PLAIN]
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
JAZZMIN_UI_TWEAKS = {"default_theme_mode": "auto"}
