LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {
        "django_pgqueue": {"handlers": ["console"], "level": "INFO"},
        # Jobs that go well are logged at INFO. With this level, only retries and failures are logged.
        "django_pgqueue.job": {"level": "WARNING"},
    },
}
