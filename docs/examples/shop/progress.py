from django_pgqueue import task

from .models import DailyReport, Order


@task
def write_report(report_id: int) -> None:
    orders = list(Order.objects.order_by("pk"))
    for number, _ in enumerate(orders, start=1):
        # Commits at once, so that others see it. In an atomic task they would not.
        text = f"{number} of {len(orders)} orders"
        DailyReport.objects.filter(pk=report_id).update(text=text)
