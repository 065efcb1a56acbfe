import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "mysite",
        "HOST": os.environ.get("DATABASE_HOST", "pooler.internal"),
        "PORT": os.environ.get("DATABASE_PORT", "6432"),
        # As Django asks for behind any transaction pooler.
        "DISABLE_SERVER_SIDE_CURSORS": True,
    },
}
