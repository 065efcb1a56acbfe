"""What a subcommand prints about several shards: one table with a column for the shard, one JSON document.

Shards without an answer are named in the error, which goes to standard error and sets the exit code. They
have no rows and no figures: a 0 would say that nothing waits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..postgres.ask import Answers, ask_all
from ._conditions import check_database, check_vendor
from ._output import Block, Nothing, Output, Table
from ._parser import Run


def on_each(run: Run, aliases: Iterable[str], options: dict[str, Any], *, keep: bool) -> Output:
    """Run a subcommand on each shard, side by side, and return its outputs as one. ``keep``: it commits."""

    def ask(alias: str) -> Output | Nothing:
        check_vendor(alias)
        check_database(alias)
        try:
            output = run({**options, "database": alias, "shards": (alias,)})
        except Nothing as error:
            return error
        return replace(output, text=[*output.text])  # what is read while it is printed is read now

    return merged(ask_all(aliases, ask, keep=keep))


def merged(answers: Answers[Output | Nothing]) -> Output:
    """Return the outputs of several shards as one. That one has nothing is an error if all have nothing."""
    outputs = {alias: each for alias, each in answers.given.items() if isinstance(each, Output)}
    if not outputs and answers.given:
        raise Nothing("\n".join({str(each): "" for each in [*answers.given.values(), answers] if str(each)}))
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
