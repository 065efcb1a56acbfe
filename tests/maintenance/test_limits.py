"""Limits that the code declares, and those that it no longer declares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from django_pgqueue import reset_limit
from django_pgqueue.maintenance.limits import DeclaredLimits
from django_pgqueue.models import Limit
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.tasks import paths
from tests.app import limit_tasks
from tests.support.sessions import Connect, start

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "tests.app.limit_tasks"


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    session = connect("default")
    yield session
    session.close()


def add(name: str, module: str = HERE, **columns: Any) -> None:
    """Add a limit that other code has declared."""
    Limit.objects.create(name=name, concurrency=3, declared_concurrency=3, declared_by=module, **columns)


def withdrawn(session: Session) -> set[str]:
    """Return the names of the limits that are found to be no longer declared."""
    before = set(Limit.objects.exclude(declared_by="").values_list("name", flat=True))
    DeclaredLimits().withdraw(session)
    return before - set(Limit.objects.exclude(declared_by="").values_list("name", flat=True))


def test_a_limit_that_was_removed_from_code_keeps_its_number_and_can_be_deleted(session: Session) -> None:
    DeclaredLimits().write(session)
    two = Limit.objects.get(name=limit_tasks.two.module_path)
    assert (two.concurrency, two.declared_by) == (2, HERE)
    add("removed")
    assert withdrawn(session) == {"removed"}
    left = Limit.objects.get(name="removed")
    assert (left.concurrency, left.is_declared, left.is_left_over) == (3, False, True)
    assert withdrawn(session) == set()
    reset_limit(name="removed")
    assert not Limit.objects.filter(name="removed").exists()


def test_a_limit_that_was_set_by_hand_is_only_that_afterwards(session: Session) -> None:
    add("removed", is_overridden=True)
    assert withdrawn(session) == {"removed"}
    left = Limit.objects.get(name="removed")
    assert (left.concurrency, left.is_declared, left.is_overridden, left.is_left_over) == (
        3,
        False,
        True,
        False,
    )


def test_a_limit_comes_back_when_the_code_declares_it_again(session: Session) -> None:
    add("removed")
    assert withdrawn(session) == {"removed"}
    columns = "'{removed}', '{5}', '{wait}', '{NULL}', '{NULL}', '{NULL}', '{tests.app.tasks}'"
    assert session.value(f"SELECT _pgqueue_declare_limits({columns})") == 1
    back = Limit.objects.get(name="removed")
    assert (back.concurrency, back.declared_concurrency, back.declared_by, back.is_left_over) == (
        5,
        5,
        "tests.app.tasks",
        False,
    )


@pytest.mark.parametrize(
    ("module", "is_gone"),
    [
        (HERE, True),
        ("tests.app.removed", True),  # a module of an app that does not exist any more
        ("tests.app.removed.tasks", True),
        ("warehouse.tasks", False),  # of another project
        ("tests.app.not_imported", False),
    ],
)
def test_only_modules_that_this_process_knows_are_asked(
    session: Session, monkeypatch: pytest.MonkeyPatch, module: str, is_gone: bool
) -> None:
    monkeypatch.setattr(
        paths, "find_spec", lambda name: object() if name.endswith("not_imported") else find_spec(name)
    )
    add("removed", module)
    assert withdrawn(session) == ({"removed"} if is_gone else set())


def test_a_package_that_cannot_be_imported_is_left_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(paths, "find_spec", fail)
    add("removed", "tests.app.broken.tasks")
    assert withdrawn(session) == set()


def test_a_limit_that_another_worker_declares_meanwhile_stays(
    session: Session, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code has moved to another module, and this worker, with older code, has read the row before."""
    monkeypatch.setitem(sys.modules, "tests.app.old", ModuleType("tests.app.old"))
    add("moved", "tests.app.old")
    other = connect()
    columns = "'{moved}', '{3}', '{wait}', '{NULL}', '{NULL}', '{NULL}', '{tests.app.new}'"
    other.execute(f"SELECT _pgqueue_declare_limits({columns})")
    withdrawing = start(session.connection, lambda _: DeclaredLimits().withdraw(session)).blocked()
    other.commit()
    withdrawing.result()
    moved = Limit.objects.get()
    assert (moved.declared_concurrency, moved.declared_by) == (3, "tests.app.new")
