"""Send alerts: compare what is wrong with what was reported before, and report the difference.

Each look is one transaction that has locked its duty, so of several supervisors one looks, and the others do
not wait. It stores what it has found before anything is sent, so each change is sent once; if the process
ends in between, it is not sent at all.

A problem that comes and goes is reported once: it ends only when it has been gone for ``ALERTS_CLEAR_AFTER``
seconds.

The receivers are the project's code, which may raise or hang, so everything happens in a thread with a
connection of its own. If it hangs, the maintenance goes on, and other supervisors look instead.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections, transaction
from django.utils.translation import gettext as _, ngettext

from .. import conf
from ..alerts import Alert, alert_sent
from ..formatting import get_logger, number
from ..models import RaisedAlert
from ..monitoring.health import health
from ..postgres import fetch_rows
from ..redaction import redact_text

logger = get_logger(__name__)

MOST_GROUPS = 100  # that one round reports
LOOK = "look"
#: After a longer pause than this, what failed in the meantime is not reported.
FORGOTTEN = timedelta(hours=1)
#: While there are too few workers at all, health does not say more about workers, so these have not ended.
_HIDES = {"no_worker": ["few_workers", "unserved"], "few_workers": ["unserved"]}


class AlertRounds:
    """When a supervisor checks next. It does nothing if alerts have no receiver."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._thread: Thread | None = None
        self.next_round = 0.0

    def run(self, now: float) -> None:
        """Look in a thread, if it is due."""
        if now < self.next_round:
            return
        is_first = not self.next_round
        self.next_round = now + conf.current().alerts_interval * random.uniform(0.9, 1.1)
        is_wanted = conf.current().alerts or alert_sent.has_listeners(Alert)
        if is_first or not is_wanted:  # at the start, its own workers are not registered yet
            return
        if self._thread is not None and self._thread.is_alive():
            logger.warning("a receiver of alerts has not returned yet, so no alerts are sent")
            return
        self._thread = Thread(target=_in_thread, args=(self._alias,), name="pgqueue alerts", daemon=True)
        self._thread.start()


def _in_thread(alias: str) -> None:
    try:
        send(look(alias))
    except Error as error:
        logger.warning("alerts: the database cannot be read: %s", error)
    except Exception:
        logger.exception("alerts: the search for problems failed")
    finally:
        connections.close_all()


def send(alerts: Iterable[Alert]) -> None:
    """Call all receivers with each alert. What they raise is logged."""
    for alert in alerts:
        for path in conf.current().alerts:
            try:
                conf.callable_at("ALERTS", path, "the alert")(alert)
            except ImproperlyConfigured as error:
                logger.error("%s", error)
            except Exception:
                logger.exception("the receiver of alerts %s failed", path)
        alert_sent.send_robust(Alert, alert=alert)  # logs what receivers raise


def look(alias: str) -> list[Alert]:
    """Return what is to be reported now, and store that it was. Raises ``django.db.Error``."""
    with transaction.atomic(using=alias):
        ((is_mine, now),) = fetch_rows(alias, "SELECT _pgqueue_on_duty('alerts'), clock_timestamp()")
        if not is_mine:
            return []
        last = RaisedAlert.objects.using(alias).filter(kind=LOOK, queue_name="").first()
        pause = None if last is None else now - last.raised_at
        if pause is not None and pause < timedelta(seconds=0.8 * conf.current().alerts_interval):
            return []  # another supervisor has looked
        found = [*_changed_problems(alias, now), *_failures(alias, now)]
        if pause is None or pause > max(FORGOTTEN, timedelta(seconds=10 * conf.current().alerts_interval)):
            found = [alert for alert in found if not alert.fingerprint]
        RaisedAlert.objects.using(alias).update_or_create(
            kind=LOOK, queue_name="", defaults={"text": "", "raised_at": now}
        )
    return found


def _changed_problems(alias: str, now: datetime) -> Iterator[Alert]:
    """Yield the problems that are new, and the ended ones that have been gone for long enough."""
    problems = health(alias).problems
    if any(problem.kind == "unreachable" for problem in problems):
        return
    current = {(str(problem.kind), problem.queue_name): problem for problem in problems}
    rows = RaisedAlert.objects.using(alias).exclude(kind=LOOK)
    raised = {(row.kind, row.queue_name): row for row in rows}
    hidden = {each for kind, _queue in current for each in _HIDES.get(kind, ())}
    for key, problem in current.items():
        if key not in raised:
            RaisedAlert.objects.using(alias).create(
                kind=problem.kind, queue_name=problem.queue_name, text=problem.text, raised_at=now
            )
            yield _alert(problem.kind, alias, now, problem.text, queue_name=problem.queue_name)
    for key, row in raised.items():
        since = None if key in current or row.kind in hidden else row.over_since or now
        if since is not None and now - since >= timedelta(seconds=conf.current().alerts_clear_after):
            row.delete(using=alias)
            text = _("over: %(text)s") % {"text": row.text}
            yield _alert(row.kind, alias, now, text, queue_name=row.queue_name, is_over=True)
        elif row.over_since != since:
            row.over_since = since
            row.save(using=alias, update_fields=["over_since"])


def _failures(alias: str, now: datetime) -> Iterator[Alert]:
    """Yield the groups of failures that are new, and those with more jobs that failed."""
    rows = fetch_rows(alias, "SELECT * FROM _pgqueue_tell_failures(%s)", [MOST_GROUPS])
    for fingerprint, error_class, message, tasks, job, is_new, failed in rows:
        words = redact_text(message, tasks[0] if tasks else "")
        error = ": ".join(filter(None, [error_class or _("a failure without an error"), words]))
        about = {"fingerprint": fingerprint, "error_class": error_class, "tasks": tuple(tasks), "job_id": job}
        where = {"error": error, "tasks": ", ".join(tasks[:3])}
        if is_new:
            text = _("new failure: %(error)s (%(tasks)s)") % where
            yield _alert("new_failure", alias, now, text, count=failed, **about)
        if failed > 0:
            text = ngettext(
                "%(count)s job failed: %(error)s (%(tasks)s)",
                "%(count)s jobs failed: %(error)s (%(tasks)s)",
                failed,
            ) % {"count": number(failed), **where}
            yield _alert("job_failed", alias, now, text, count=failed, **about)


def _alert(kind: Any, alias: str, now: datetime, text: str, **more: Any) -> Alert:
    # The messages of errors may contain line breaks and control characters. A mail whose subject has one is
    # refused by Django, and an alert is sent only once.
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return Alert(kind=kind, database=alias, at=now, text=line, **more)
