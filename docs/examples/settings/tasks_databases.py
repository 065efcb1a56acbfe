TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
    },
    "events": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "OPTIONS": {"database": "other"},
    },
}
