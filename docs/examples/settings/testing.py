TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.testing.ImmediateBackend",
        "OPTIONS": {"at_once": True, "raise_failures": False},
    },
}
