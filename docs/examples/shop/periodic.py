from datetime import date

from django.db import transaction

from django_pgqueue import enqueue, task

from .models import DailyReport, Order


@task(queue_name="reports")
def build_report(report_id: int) -> None:
    text = f"{Order.objects.count()} orders"
    DailyReport.objects.filter(pk=report_id).update(text=text)


def enqueue_daily_report(day: date) -> bool:
    """Enqueue the report of a day once, even if several machines call this."""
    with transaction.atomic():
        report, created = DailyReport.objects.get_or_create(day=day)
        if created:
            enqueue(build_report, report.pk)
    return created
