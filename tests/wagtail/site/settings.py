"""The settings of a Wagtail site, as ``wagtail start`` writes them, with this queue added."""

from __future__ import annotations

from pathlib import Path

from tests.settings import (
    DATABASES as DATABASES,
    DEFAULT_AUTO_FIELD as DEFAULT_AUTO_FIELD,
    PASSWORD_HASHERS as PASSWORD_HASHERS,
    SECRET_KEY as SECRET_KEY,
    TEMPLATES as TEMPLATES,
)

INSTALLED_APPS = """
    tests.wagtail.site.home django_pgqueue wagtail.contrib.frontend_cache wagtail.contrib.redirects
    wagtail.embeds wagtail.sites wagtail.users wagtail.snippets wagtail.documents wagtail.images
    wagtail.search wagtail.admin wagtail modelcluster taggit django_filters django.contrib.admin
    django.contrib.auth django.contrib.contenttypes django.contrib.sessions django.contrib.messages
    django.contrib.postgres django.contrib.staticfiles
""".split()
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "wagtail.contrib.redirects.middleware.RedirectMiddleware",
]
ROOT_URLCONF = "tests.wagtail.site.urls"
USE_TZ = True
STATIC_URL = "static/"
MEDIA_URL = "media/"
MEDIA_ROOT = Path(__file__).parents[3] / "var" / "wagtail-media"

WAGTAIL_SITE_NAME = "Tests"
WAGTAILADMIN_BASE_URL = "http://testserver"
WAGTAILSEARCH_BACKENDS = {"default": {"BACKEND": "wagtail.search.backends.database"}}
WAGTAILIMAGES_FEATURE_DETECTION_ENABLED = True
WAGTAILFRONTENDCACHE = {"default": {"BACKEND": "tests.wagtail.site.home.purging.ListOfPurged"}}
WAGTAILDOCS_EXTENSIONS = ["txt"]
