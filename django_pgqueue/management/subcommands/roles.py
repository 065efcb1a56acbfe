"""``manage.py pgqueue roles``: make a database role that may only enqueue, and one for workers."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.db import DatabaseError, connections, transaction

from ...postgres.roles import forbidden, installation, shortened, statements_to_drop, statements_to_make
from .._parser import Subcommand

_ALL = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES"]


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--enqueuer", default="pgqueue_enqueuer", metavar="ROLE", help="the role that may only enqueue")
    add("--worker", default="pgqueue_worker", metavar="ROLE", help="the role for workers")
    add("--drop", action="store_true", help="take the rights back and drop the roles")
    add("--apply", action="store_true", help="run the SQL instead of printing it")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the statements or run them."""
    alias, enqueuer, worker = options["database"], options["enqueuer"], options["worker"]
    if enqueuer == worker:
        raise ArgumentTypeError("--enqueuer and --worker must name two roles.")
    make = statements_to_drop if options["drop"] else statements_to_make
    statements = list(make(installation(alias), enqueuer, worker))
    if not options["apply"]:
        stdout.write("\n".join(["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"]))
        return
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        if not options["drop"]:
            _check(alias, {enqueuer: _ALL, worker: ["TRUNCATE", "REFERENCES"]})
    except DatabaseError as error:
        raise CommandError(
            f"Nothing was changed: {str(error).strip()}\n"
            "The owner of the tables must run this, and it needs CREATEROLE to make roles. Or let an "
            "administrator run what this command prints without --apply."
        ) from error
    done = "Took the rights of" if options["drop"] else "Gave rights to"
    stdout.write(f"{done} {enqueuer} and {worker}.")


def _check(alias: str, forbidden_rights: dict[str, list[str]]) -> None:
    """Look whether the roles have rights that this command has not given, and cannot take back."""
    for role, rights in forbidden_rights.items():
        if found := forbidden(alias, role, rights):
            raise CommandError(
                f"The role {role} can still {shortened(found)}. It has this right through PUBLIC, "
                "or through a role whose member it is. Revoke it there."
            )


SUBCOMMANDS = [Subcommand("roles", "Print the SQL that makes roles with few rights", _add_arguments, run)]
