"""Keep the search page and the admin running for a browser, and create a user for the login."""

from __future__ import annotations

import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from example_project.project.places import VAR
from example_project.project.secrets import kept_secret

from .children import Child
from .display import Screen

HOST = "127.0.0.1"
PORT = 8000
USER = "demo"
START = 30  # seconds that the server may take to answer


def free_address(wanted: int | None) -> str:
    """Return host and port for the server: the wanted port, or the default port, or any free port."""
    for port in [wanted] if wanted else [PORT, 0]:
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            return f"{HOST}:{candidate.getsockname()[1]}"
    raise CommandError(f"Port {wanted} cannot be used. Choose another port with --port, or omit the option.")


def wait_for_answer(server: Child, address: str) -> None:
    """Return when the server answers. Raises CommandError if it ends, or takes longer than START."""
    deadline = time.monotonic() + START
    while not _answers(address):
        server.check()
        if time.monotonic() > deadline:
            raise CommandError(f"{address} does not answer after {START} s. See {server.log}.")
        time.sleep(0.05)


def login() -> str:
    """Return the password of the user `demo`, and create the user if necessary.

    If somebody has changed the password, it is not changed back.
    """
    users = get_user_model()
    password = kept_secret(VAR / "demo_password", lambda: secrets.token_urlsafe(9))
    user = users._default_manager.filter(username=USER).first()
    if user is None:
        users._default_manager.create_superuser(username=USER, email="", password=password)
    elif not user.check_password(password):
        return "(the one that you set)"
    return password


def wait_for_ever(screen: Screen, load: Callable[[], None], *children: Child) -> None:
    """Call `load` twice a second, and return on Ctrl-C. Raise CommandError if a child ends by itself."""
    screen.say(f"\n  {screen.style('Press Ctrl-C to stop everything.', 'quiet')}")
    try:
        while True:
            for child in children:
                child.check()
            load()
            time.sleep(0.5)
    except KeyboardInterrupt:
        screen.say()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
