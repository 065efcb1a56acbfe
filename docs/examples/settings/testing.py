TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.testing.ImmediateBackend",
    },
}
