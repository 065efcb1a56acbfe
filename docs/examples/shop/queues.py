from datetime import timedelta

from django_pgqueue.models import Queue


def set_up_queues() -> None:
    """Call this in a data migration or a shell. Queues without a row use the defaults."""
    Queue.objects.update_or_create(
        name="mail",
        defaults={
            "retention": timedelta(0),  # delete done jobs at once
            "failed_retention": timedelta(days=90),
            "backoff_base": 60.0,
            "backoff_ceiling": 86_400.0,
        },
    )
    Queue.objects.update_or_create(name="audit", defaults={"retention": timedelta(days=3650)})
