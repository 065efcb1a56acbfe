import os

PGQUEUE = {
    # Prometheus and the load balancer send it as "Authorization: Bearer ...".
    "MONITORING_TOKEN": os.environ.get("MONITORING_TOKEN"),
    # Prometheus, which does not come through the proxy of the public. It needs no token.
    "MONITORING_NETWORKS": ["10.20.0.7"],
    "HEALTH": {
        "*": {"age": 300},
        "mail": {"age": 60, "workers": 2},
        "reports": {"age": None, "depth": 1000},
    },
}
