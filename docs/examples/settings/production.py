import os

SECRET_KEY = os.environ["SECRET_KEY"]
DEBUG = False
ALLOWED_HOSTS = os.environ["ALLOWED_HOSTS"].split(",")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ["PGPASSWORD"],
    }
}

TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": ["default", "mail"],  # a misspelled name is refused
    },
}

PGQUEUE = {
    "TIMEOUT": 600,
    "GRACE": 60,
    "MONITORING_TOKEN": os.environ["MONITORING_TOKEN"],
    "VERSION": os.environ.get("GIT_COMMIT", "")[:12],
}
