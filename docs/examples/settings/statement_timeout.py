import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "mysite",
        "OPTIONS": {
            # In milliseconds. Set STATEMENT_TIMEOUT in the environment of the workers.
            "options": f"-c statement_timeout={os.environ.get('STATEMENT_TIMEOUT', '30000')}",
        },
    },
}
