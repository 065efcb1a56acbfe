LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "django_pgqueue.logs.JobFilter"}},
    "formatters": {"job": {"format": "%(levelname)s [job %(job_id)s %(task_path)s] %(message)s"}},
    "handlers": {
        # The filter belongs to the handler. A logger's filter does not see the records of its children.
        "console": {"class": "logging.StreamHandler", "filters": ["job"], "formatter": "job"},
    },
    "loggers": {"shop": {"handlers": ["console"], "level": "INFO"}},
}
