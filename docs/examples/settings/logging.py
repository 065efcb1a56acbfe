LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {
        "django_pgqueue": {"handlers": ["console"], "level": "INFO"},
        # A line for each job that went well is INFO; this keeps retries and failures only.
        "django_pgqueue.job": {"level": "WARNING"},
    },
}
