"""Receivers of alerts: a mail, a webhook, and a signal."""

import json
from urllib.request import Request, urlopen

from django.conf import settings
from django.core.mail import send_mail
from django.dispatch import receiver
from django.urls import reverse

from django_pgqueue.alerts import Alert, alert_sent


def mail(alert: Alert) -> None:
    """Mail problems that are raised, and new failures. The mail of a group has a link to its page."""
    if alert.is_over or alert.kind == "job_failed":
        return
    lines = [alert.text, f"noticed {alert.at:%Y-%m-%d %H:%M:%S %Z} in the database {alert.database}"]
    if alert.fingerprint:
        lines.append(reverse("admin:django_pgqueue_job_failure", args=[alert.fingerprint]))
    send_mail(alert.text[:100], "\n".join(lines), None, settings.ON_CALL)


def post_to_chat(alert: Alert) -> None:
    """Send everything to a webhook. Set a timeout: while a receiver waits, others do too."""
    mark = "✅" if alert.is_over else "🔴"
    body = json.dumps({"text": f"{mark} {alert.text}"}).encode()
    request = Request(settings.CHAT_WEBHOOK, body, {"Content-Type": "application/json"})
    urlopen(request, timeout=5).close()


@receiver(alert_sent)
def count(sender: type[Alert], alert: Alert, **kwargs: object) -> None:
    """Receive alerts by the signal instead. Connect it in ``AppConfig.ready()``."""
    COUNTS[alert.kind] = COUNTS.get(alert.kind, 0) + 1


COUNTS: dict[str, int] = {}
