from datetime import timedelta

from django_pgqueue.models import Queue


def set_up_queues() -> None:
    """For a data migration, or once in a shell. A queue without a row has the defaults."""
    Queue.objects.update_or_create(
        name="mail",
        defaults={
            "keep_done": timedelta(0),  # nothing of what went well
            "keep_failed": timedelta(days=90),
            "backoff_base": 60.0,
            "backoff_ceiling": 86_400.0,
        },
    )
    Queue.objects.update_or_create(name="audit", defaults={"keep_done": timedelta(days=3650)})
