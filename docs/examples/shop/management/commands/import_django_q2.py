from ast import literal_eval

from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage

from django_pgqueue import enqueue
from shop.billing import charge_order

MOVED = {"shop.q2_tasks.charge_order": charge_order}


class Command(BaseCommand):
    help = "Move the tasks that wait in the ORM broker of django-q2 to django_pgqueue."

    def handle(self, **options):
        moved = self.move_waiting() + self.move_planned()
        self.stdout.write(f"{moved} moved")

    @transaction.atomic  # all or nothing
    def move_waiting(self):
        moved = 0
        # A lock in the future means that a cluster runs the task now, or will run it again.
        waiting = OrmQ.objects.select_for_update(skip_locked=True).filter(lock__lte=timezone.now())
        for row in waiting.order_by("pk"):
            package = SignedPackage.loads(row.payload)  # checks the signature before it unpickles
            if package["func"] in MOVED:
                enqueue(MOVED[package["func"]], *package["args"], **package["kwargs"])
                row.delete()
                moved += 1
        return moved

    @transaction.atomic
    def move_planned(self):
        moved = 0
        planned = Schedule.objects.select_for_update(skip_locked=True)
        for row in planned.filter(schedule_type=Schedule.ONCE, func__in=MOVED).exclude(repeats=0):
            task = MOVED[row.func].using(run_after=row.next_run)
            enqueue(task, *literal_eval(row.args or "()"), **literal_eval(row.kwargs or "{}"))
            row.delete()
            moved += 1
        return moved
