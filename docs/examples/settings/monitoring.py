import os

PGQUEUE = {
    # Prometheus and the load balancer send it as "Authorization: Bearer ...".
    "MONITORING_TOKEN": os.environ.get("MONITORING_TOKEN"),
    # These need no token.
    "MONITORING_NETWORKS": ["127.0.0.1", "10.0.0.0/8"],
    "HEALTH": {
        "*": {"age": 300},
        "mail": {"age": 60, "workers": 2},
        "reports": {"age": None, "depth": 1000},
    },
}
