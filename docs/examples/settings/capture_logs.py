PGQUEUE = {
    # The jobs of the queue "reports" keep lines at INFO and above; all others keep warnings.
    "CAPTURE_LOGS": {"reports": "INFO", "*": "WARNING"},
    "LOG_LINES": 500,
    "LOG_BYTES": 64 * 1024,
}
