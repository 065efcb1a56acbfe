"""Settings of the example project, for a developer's own machine.

These environment variables change them:

DATABASE_URL   the database; if not set, a PostgreSQL server of the checkout's own is started under var/
SECRET_KEY     the secret key; if not set, a random one is created and kept under var/
DEBUG          debug mode; it is on by default (runserver needs it to serve the style sheets)
LOG_LEVEL      the level of the queue's log; with INFO, every job is logged
EXAMPLE_VAR    the folder to use instead of var/
"""

from __future__ import annotations

import environ
from django.core.management.utils import get_random_secret_key

from example_project.project.database import database_url
from example_project.project.places import VAR
from example_project.project.secrets import kept_secret

env = environ.Env()

DATABASES = {
    "default": {
        # Connections stay open between jobs and requests: connecting takes longer than indexing a small file.
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        **env.db_url_config(database_url()),
    },
}
SECRET_KEY: str = env.str("SECRET_KEY", default="") or kept_secret(VAR / "secret_key", get_random_secret_key)
DEBUG: bool = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_pgqueue",
    "example_project.search",
    "example_project.demo",
]

TASKS = {
    "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "example_project.project.urls"
WSGI_APPLICATION = "example_project.project.wsgi.application"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:7} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "django_pgqueue": {
            "handlers": ["stderr"],
            "level": env.str("LOG_LEVEL", default="INFO"),
            "propagate": False,
        },
    },
}
