from django.core.management.base import BaseCommand
from django.utils import timezone

from shop.periodic import enqueue_daily_report


class Command(BaseCommand):
    help = "Enqueue today's report. For cron; it does no harm to run this twice."

    def handle(self, *args, **options):
        created = enqueue_daily_report(timezone.localdate())
        self.stdout.write("enqueued" if created else "already enqueued today")
