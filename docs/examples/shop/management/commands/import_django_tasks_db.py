from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils.module_loading import import_string
from django_tasks_db.models import DBTaskResult

from django_pgqueue import enqueue

NO_TIME = 9999  # the year in which a task that may run at once is due


class Command(BaseCommand):
    help = "Move the tasks that wait in django-tasks-db to django_pgqueue."

    def handle(self, **options):
        moved = 0
        # All or nothing. Workers of django-tasks-db skip the rows that are locked here.
        with transaction.atomic():
            waiting = DBTaskResult.objects.select_for_update(skip_locked=True)
            for row in waiting.filter(status="READY").order_by("enqueued_at"):
                task = import_string(row.task_path).using(
                    priority=row.priority,
                    queue_name=row.queue_name,
                    run_after=None if row.run_after.year >= NO_TIME else row.run_after,
                )
                enqueue(task, *row.args_kwargs["args"], **row.args_kwargs["kwargs"])
                row.delete()
                moved += 1
        self.stdout.write(f"{moved} moved")
