NODE = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "mysite",
    "OPTIONS": {"options": "-c search_path=pgq,public -c citus.enable_ddl_propagation=off"},
}
DATABASES = {
    "default": {**NODE, "HOST": "coordinator.internal"},
    "node1": {**NODE, "HOST": "node1.internal"},
    "node2": {**NODE, "HOST": "node2.internal"},
}
PGQUEUE = {
    "SHARDS": ["default", "node1", "node2"],
}
