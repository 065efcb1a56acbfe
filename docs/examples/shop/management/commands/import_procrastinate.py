from django.core.management.base import BaseCommand
from django.db import transaction
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob

from django_pgqueue import enqueue
from shop.billing import charge_order

MOVED = {"shop.procrastinate_tasks.charge_order": charge_order}


class Command(BaseCommand):
    help = "Move the jobs that wait in procrastinate to django_pgqueue."

    def handle(self, **options):
        moved = 0
        for job in ProcrastinateJob.objects.filter(status="todo", task_name__in=MOVED).order_by("id"):
            # Both, or neither. Procrastinate refuses to cancel a job that a worker has taken.
            with transaction.atomic():
                if app.job_manager.cancel_job_by_id(job.pk):
                    task = MOVED[job.task_name].using(
                        priority=max(-100, min(100, job.priority)), run_after=job.scheduled_at
                    )
                    enqueue(task, **job.args)
                    moved += 1
        self.stdout.write(f"{moved} moved")
