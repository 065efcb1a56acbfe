from datetime import timedelta

PGQUEUE = {
    "GROUP_WEIGHTS": {"acme": 5},  # five jobs in each turn
    "AGING": timedelta(minutes=10),  # a job that has waited so long counts as one of the next priority
}
