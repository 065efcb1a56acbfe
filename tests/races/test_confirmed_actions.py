"""An action of the admin is confirmed for jobs in one state, and one of them changes its state meanwhile."""

from __future__ import annotations

from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.models import Job
from tests.admin.helpers import ask
from tests.support.jobs import add, claim
from tests.support.sessions import Connect, Connection, open_raw, who_waits_for
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def commit_once_blocked(holder: Connection) -> Thread:
    """Commit as soon as the statement of any other session waits for this transaction."""

    def run() -> None:
        with open_raw() as observer:
            until(lambda: who_waits_for(holder, observer))
        holder.commit()

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_job_that_is_claimed_while_its_cancel_is_confirmed_is_not_asked_to_stop(
    connect: Connect, client: Client
) -> None:
    claimer, other = connect(), connect(autocommit=True)
    first, second = (Job.objects.get(pk=pk) for pk in add(other, 2))
    client.force_login(User.objects.create_superuser("root"))
    page = ask(client, "cancel_jobs", first, second)
    assert page.sentences == ["2 waiting jobs would be cancelled."]
    assert [row.id for row in claim(claimer, 1)] == [first.pk]
    thread = commit_once_blocked(claimer)
    told, _kind = page.confirm(client)
    thread.join()
    assert told.startswith("1 job was cancelled")
    assert told.endswith("1 other changed in the meantime and was left alone.")
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, first.cancel_requested_at) == ("running", None)
    assert second.status == "cancelled"
