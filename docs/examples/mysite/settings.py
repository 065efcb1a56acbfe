"""The settings of the quickstart's project."""

import os

SECRET_KEY = "only an example"
USE_TZ = True

INSTALLED_APPS = [
    "django_pgqueue",
    "shop",
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "mysite"),
    }
}
