"""What Wagtail leaves to cron."""

from __future__ import annotations

from django.core.management import call_command

from django_pgqueue import schedule, task


@schedule(cron="*/5 * * * *")
@task
def publish_scheduled() -> None:
    """Publish the pages whose time has come, and unpublish pages that expire."""
    call_command("publish_scheduled")
