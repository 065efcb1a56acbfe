DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "mysite",
        "HOST": "db1.internal,db2.internal",
        "PORT": "5432,5432",
        "OPTIONS": {"target_session_attrs": "read-write", "connect_timeout": 3},
    }
}
