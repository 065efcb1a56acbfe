"""What the tests of the admin share: jobs in each state, users, requests."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from django_pgqueue.models import Job

STATES: dict[str, dict[str, Any]] = {
    "pending": {},
    "retry": {"retrying": True},
    "running": {"running": True},
    "blocked": {"status": "blocked", "waiting_reason": "at most 2 at once"},
    "done": {"done": True},
    "failed": {"failed": True},
    "cancelled": {"cancelled": True},
}


def staff(*permissions: str) -> Client:
    """A client of a user of the admin with these permissions, and no others."""
    user = User.objects.create_user(f"staff {User.objects.count()}", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="django_pgqueue", codename__in=permissions)
    )
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


def url(page: str, *arguments: Any, model: str = "job") -> str:
    return reverse(f"admin:django_pgqueue_{model}_{page}", args=arguments)


def body(client: Client, address: str, **query: Any) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return response.content.decode()


def listed(client: Client, address: str = "/admin/django_pgqueue/job/", **query: Any) -> list[int]:
    """The ids on the list, from the top."""
    response = client.get(address, query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def post(client: Client, address: str, **data: Any) -> tuple[str, str]:
    """The message and its kind, after a POST."""
    response = client.post(address, data)
    assert response.status_code == 302
    [message] = get_messages(response.wsgi_request)
    return message.message, message.level_tag


def act(client: Client, action: str, *jobs: Job, **query: Any) -> tuple[str, str]:
    """Run an action of the list on a selection."""
    address = f"{url('changelist')}?{'&'.join(f'{k}={v}' for k, v in query.items())}"
    return post(client, address, action=action, _selected_action=[job.pk for job in jobs], index=0)
