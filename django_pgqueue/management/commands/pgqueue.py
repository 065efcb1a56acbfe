"""``manage.py pgqueue``: look at the queue and change it from a terminal."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import connections
from django.utils import translation

from ... import conf
from ...exceptions import PgQueueError
from ...postgres.timeout import TimeLimitReached
from .._arguments import database_alias
from .._conditions import check_database, check_vendor, on_shards, reachable
from .._output import Block, No, Output, Table, no_reader, prepare
from .._parser import BROKEN_PIPE, DEFAULT, INTERRUPTED, USAGE, Subcommand, accept_options, found, hinting


class Command(BaseCommand):
    """Parse, call the subcommand, exit code."""

    help = "Show and change the state of django_pgqueue."
    # A project whose checks fail must still be able to pause its work.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        parser = hinting(parser, DEFAULT)
        parser.add_argument(
            "--database", type=database_alias, default=None, metavar="ALIAS", help="the database of the jobs"
        )
        chosen = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND")
        for name, subcommand in found().items():
            inner = chosen.add_parser(
                name,
                help=subcommand.help,
                description=f"{subcommand.help}.",
                formatter_class=DjangoHelpFormatter,
            )
            accept_options(inner, parser)
            if subcommand.has_json:
                inner.add_argument("--json", action="store_true", help="print JSON instead of text")
            for add in subcommand.arguments:
                add(inner)
        self._parsers: Mapping[str, ArgumentParser] = chosen.choices

    # The output is in English, whatever LANGUAGE_CODE is: scripts read it, and so does who helps.
    @translation.override("en")
    def handle(self, *args: Any, **given: Any) -> None:
        """Run the subcommand."""
        subcommand = found()[given["subcommand"]]
        try:
            options = {**self._read(given), "stdout": self.stdout}
            prepare(self.stdout)
            try:
                output = self._run(subcommand, options)
                output.print(self.stdout, as_json=bool(options.get("json")))
            finally:
                self.stdout.flush()
        except BrokenPipeError:
            no_reader(self.stdout)
            sys.exit(BROKEN_PIPE)
        except (KeyboardInterrupt, No) as end:
            if not self._called_from_command_line:  # type: ignore[attr-defined]
                raise
            sys.exit(end.returncode if isinstance(end, No) else INTERRUPTED)
        except ArgumentTypeError as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except (ImproperlyConfigured, PgQueueError, TimeLimitReached) as error:
            raise CommandError(str(error)) from error

    def _run(self, subcommand: Subcommand, options: dict[str, Any]) -> Output:
        """Run it in the database that is named, or in all shards."""
        named = options.get("job")  # an id names its database
        alias = named[0] if isinstance(named, tuple) and named[0] else database_alias(options["database"])
        shards, where = conf.current().shards, subcommand.shards
        if where == "list" and options["action"] not in (None, "list"):
            where = "one"
        if options["database"] is None and where != "one" and len(shards) > 1:
            options |= {"database": shards[0], "shards": shards}
            if where == "all":
                return subcommand.run(options)
            return _on_each(subcommand, shards, options)
        check_vendor(alias)
        with reachable(alias):
            connections[alias].ensure_connection()
        check_database(alias)
        return subcommand.run({**options, "database": alias, "shards": (alias,)})

    def _read(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options, read as on the command line also if they are keywords of ``call_command``."""
        read = dict(given)
        for action in self._parsers[given["subcommand"]]._actions:
            value = read.get(action.dest)
            if value is None and action.default is not SUPPRESS:
                value = action.default
            parse: Any = action.type
            if isinstance(value, (str, timedelta)) and parse is not None:
                value = parse(value)
            read[action.dest] = value
        return read


# What a subcommand prints about several shards: one table with a column for the shard, one JSON document.
# Shards without an answer are named in the error, which goes to standard error and sets the exit code. They
# have no rows and no figures: a 0 would say that nothing waits there.


def _on_each(subcommand: Subcommand, shards: Iterable[str], options: dict[str, Any]) -> Output:
    """Run a subcommand on each shard, side by side, and return its outputs as one."""

    def run(alias: str) -> Output:
        output = subcommand.run({**options, "database": alias, "shards": (alias,)})
        return replace(output, text=[*output.text])  # what is read while it is printed is read now

    answers = on_shards(shards, run, keep=subcommand.shards == "commit")
    outputs = answers.given
    errors = [f"{alias}: {output.error}" for alias, output in outputs.items() if output.error]
    said = [f"{alias}: {output.answer}" for alias, output in outputs.items() if output.answer]
    return Output(
        _text({alias: [*output.text] for alias, output in outputs.items()}),
        _document(outputs, answers.failed),
        "\n".join([*errors, *filter(None, [str(answers)])]),
        max((output.code for output in outputs.values()), default=1),
        "\n".join(said),
    )


def _text(texts: dict[str, list[Block]]) -> Iterator[Block]:
    """Yield what the shards say: the lines of each, then the tables, and at last what all of them say."""
    before: Block = ""
    for block in _blocks(texts):
        if before or block:
            yield block
        before = block


def _blocks(texts: dict[str, list[Block]]) -> Iterator[Block]:
    least = min(map(len, texts.values()), default=0)
    ends = [blocks[len(blocks) - least :] for blocks in texts.values()]
    common = 0
    while common < least and all(end[-1 - common] == ends[0][-1 - common] for end in ends):
        common += 1
    tables: dict[tuple[str, ...], list[tuple[str, Table]]] = {}
    for alias, blocks in texts.items():
        lines = []
        for block in blocks[: len(blocks) - common]:
            if isinstance(block, Table):
                tables.setdefault(tuple(block.head), []).append((alias, block))
            elif block:
                lines.append(block)
        if lines:
            first = lines[0] if isinstance(lines[0], str) else ""
            yield f"{alias}: {first}"
            yield from lines[1:] if first else lines
        if len(lines) > 1:
            yield ""
    for head, parts in tables.items():
        rows = [[alias, *row] for alias, table in parts for row in table.rows]
        one = parts[0][1]
        yield from ("", Table(["Shard", *head], rows, {place + 1 for place in one.right}, one.empty))
    if common:
        yield ""
        yield from ends[0][least - common :]


def _document(outputs: dict[str, Output], failed: dict[str, str]) -> Any:
    """Return one list if the documents are lists; else all documents, and who did not answer."""
    documents = {alias: output.document for alias, output in outputs.items()}
    if documents and all(isinstance(each, list) for each in documents.values()):
        return [{"shard": alias, **row} for alias, rows in documents.items() for row in rows]
    shards = [{"shard": alias, **each} for alias, each in documents.items() if each is not None]
    return {"shards": shards, "unanswered": failed}
