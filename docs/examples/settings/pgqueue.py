from datetime import timedelta

PGQUEUE = {
    "MAX_ATTEMPTS": 8,
    "RETENTION": timedelta(days=2),
    "FAILED_RETENTION": timedelta(days=90),
    "POLL_INTERVAL": 0.5,
}
