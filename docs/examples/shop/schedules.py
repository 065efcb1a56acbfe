from datetime import timedelta

from django.utils import timezone

from django_pgqueue import Schedule, Unique, schedule, task

from .models import DailyReport, Order


@schedule(cron="0 3 * * *", timezone="Europe/Paris")
@task(queue_name="reports")
def build_daily_report() -> None:
    text = f"{Order.objects.count()} orders"
    DailyReport.objects.update_or_create(day=timezone.localdate(), defaults={"text": text})


@schedule(every=timedelta(minutes=5), overlap="skip", jitter=timedelta(seconds=30))
@task
def sync_stock() -> None: ...


@schedule(name="summary-of-the-week", cron="0 9 * * 1", args=["week"])
@schedule(name="summary-of-the-month", cron="0 9 1 * *", args=["month"])
@task
def send_summary(period: str) -> str:
    return f"the summary of the {period}"


@schedule(every=timedelta(hours=1))
@task(unique=Unique(scope="live"))
def rebuild_search_index() -> None: ...


def stop_for_the_audit() -> None:
    summary = Schedule.objects.get(name="summary-of-the-month")
    summary.pause(reason="the books are being audited", author="kim")


def go_on() -> None:
    summary = Schedule.objects.get(name="summary-of-the-month")
    summary.resume()
    summary.enqueue()
