DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "mysite",
        "HOST": "db1.internal,db2.internal,db3.internal",
        "OPTIONS": {"target_session_attrs": "read-write", "connect_timeout": 3},
    },
    "replica": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "mysite",
        "HOST": "db1.internal,db2.internal,db3.internal",
        "OPTIONS": {"target_session_attrs": "prefer-standby", "connect_timeout": 3},
        "TEST": {"MIRROR": "default"},
    },
}
PGQUEUE = {
    "REPLICAS": {"default": "replica"},  # the alias of the primary, and that of its replica
}
