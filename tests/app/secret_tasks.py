"""Tasks whose arguments and results nobody shall see, and callables for the setting REDACT."""

from __future__ import annotations

from typing import Any

from django_pgqueue import task


@task(max_attempts=1)
def sign_in(user: str, password: str, *, api_key: str = "") -> dict[str, str]:
    """Return a token."""
    if user == "nobody":
        raise ValueError(f"card 4111-1111-1111-1111 of {user} is refused")
    return {"user": user, "accessToken": f"{password}-token"}


@task
def many(user: str, *tokens: str) -> None:
    """Take any number of tokens."""


def hide_users(value: Any, task_path: str) -> Any:
    """Redact what this project calls a user, and change the given value, too."""
    if isinstance(value, dict) and "user" in value:
        value["user"] = f"user of {task_path.rpartition('.')[2]}"
    return value


def fail(value: Any, task_path: str) -> Any:
    """Raise, with the value in the message."""
    raise KeyError(str(value))


def return_nonsense(value: Any, task_path: str) -> Any:
    """Return what is not JSON."""
    return {"user": object()}


NOT_CALLABLE = 5
