"""The pages show the tested examples: ``python3 dev.py examples`` writes them there.

A forge, an editor and the site show the same code, because it is in the page itself. A comment, which none
of them shows, names the file, and may name functions, classes and variables of it, in the order of the page::

    <!-- example: docs/examples/shop/unique.py#index_order,order_changed -->
    ...
    <!-- end example -->

A first line says which file of the reader's project this is, if it is not the one of the example before.
The imports that the example needs are above it, if the page does not have them yet. Options after the name:

- ``start="text"`` and ``end="text"`` show the lines from the first with one text to the next with the other,
- ``caption="shop/tasks.py"`` is another name for the first line, and ``caption=""`` leaves it out.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from textwrap import dedent, indent, wrap
from typing import Any

import django
from django.utils.module_loading import import_string

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PAGES = sorted([ROOT / "README.md", *(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)])

BLOCK = re.compile(
    r"^(?P<margin> *)<!-- example: (?P<source>.+?) -->\n(?:.*\n)*?(?P=margin)<!-- end example -->$",
    re.MULTILINE,
)
#: The language of a file, and how its comments look, by its suffix, or by its name if it has none.
LANGUAGES = {
    ".env": ("sh", "# %s"),
    ".html": ("html+django", "{# %s #}"),
    ".json": ("json", ""),  # has no comments: an example has caption=""
    ".py": ("python", "# %s"),
    ".service": ("ini", "# %s"),
    ".sh": ("sh", "# %s"),
    ".sql": ("sql", "-- %s"),
    ".toml": ("toml", "# %s"),
    ".yaml": ("yaml", "# %s"),
    "Dockerfile": ("dockerfile", "# %s"),
    "Procfile": ("text", "# %s"),
}
MAX_WIDTH = 88  # of an import in one line
#: Folders of examples whose files a reader has under the same names. The others are parts of any file.
APPS = ("invoices", "mysite", "shop")


class Source:
    """What a comment of a page names."""

    def __init__(self, words: str) -> None:
        place, *options = shlex.split(words)
        name, _, names = place.partition("#")
        self.path = ROOT / name
        self.names = [each for each in names.split(",") if each]
        self.options = dict(option.split("=", 1) for option in options)
        self.language, self.comment = LANGUAGES[self.path.suffix or self.path.name]
        self.text = self.path.read_text().strip("\n")

    @property
    def caption(self) -> str:
        """The name of the file in the reader's project, or nothing."""
        folder, _, name = self.path.relative_to(ROOT).as_posix().removeprefix("docs/examples/").partition("/")
        usual = {"deployment": name, "settings": "settings.py"} | {app: f"{app}/{name}" for app in APPS}
        return self.options.get("caption", usual.get(folder, ""))

    def code(self) -> str:
        """The lines that the page shows, without further imports."""
        lines = self.text.splitlines()
        if self.names:
            named = self._statements()
            return "\n".join(line for name in self.names for line in self._lines(named[name])).strip("\n")
        if "start" in self.options:
            lines = lines[_place(lines, self.options["start"]) :]
        if "end" in self.options:
            lines = lines[: 1 + _place(lines, self.options["end"])]
        return dedent("\n".join(lines))

    def imports(self, names: set[str]) -> str:
        """The imports of the file that bind some of these names, as far as they do, in their groups."""
        found: list[str] = []
        end = 0  # of the import before
        for node in ast.parse(self.text).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            is_new_group = node.lineno > end + 1
            end = node.end_lineno or node.lineno
            if is_new_group and found and found[-1]:
                found.append("")
            node.names = [alias for alias in node.names if _bound(alias) in names]
            if node.names:
                found.append(_in_lines(ast.unparse(node)))
        return "\n".join(found).strip("\n")

    def _statements(self) -> dict[str, ast.stmt]:
        """The statements of the module by the name that they bind."""
        named: dict[str, ast.stmt] = {}
        for node in ast.parse(self.text).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                named[node.name] = node
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    named[ast.unparse(target)] = node
        return named

    def _lines(self, node: ast.stmt) -> list[str]:
        """The lines of a statement with its decorators, and the comments and empty lines above it."""
        lines = self.text.splitlines()
        start = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) - 1
        while start and re.match(r"#|$", lines[start - 1]):
            start -= 1
        return lines[start : node.end_lineno]


class Page:
    """A page, whose examples are shown in their order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._file: Path | None = None  # of the example before
        self._known: defaultdict[Path, set[str]] = defaultdict(set)  # what the page imports or defines

    def sources(self) -> Iterator[Source]:
        """The examples of the page."""
        return (Source(block["source"]) for block in BLOCK.finditer(self.text))

    def updated(self) -> str:
        """The page with its examples as the files have them, and its docstrings as the code has them."""
        return AUTODOC.sub(_block, BLOCK.sub(self._block, self.text))

    def _block(self, block: re.Match[str]) -> str:
        source = Source(block["source"])
        code = f"```{source.language}\n{self._shown(source)}\n```"
        return indent(f"<!-- example: {block['source']} -->\n{code}\n<!-- end example -->", block["margin"])

    def _shown(self, source: Source) -> str:
        text = source.code()
        if source.language == "python":
            used, bound = names_in(text)
            known = self._known[source.path]
            if imports := source.imports(used - bound - known):
                gap = "\n\n\n" if text.startswith(("@", "class ", "def ", "async ")) else "\n\n"
                text = imports + gap + text
            known |= used | bound
        if source.caption and source.path != self._file:
            is_import = text.startswith(("from ", "import "))
            text = "\n".join([source.comment % source.caption, *([] if is_import else [""]), text])
        self._file = source.path
        return text


def _place(lines: list[str], text: str) -> int:
    return next(number for number, line in enumerate(lines) if text in line)


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def names_in(code: str) -> tuple[set[str], set[str]]:
    """The names that code uses, and those that it binds: imports, definitions, arguments and variables."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(_bound(node))
        elif name := getattr(node, "arg" if isinstance(node, ast.arg) else "name", None):
            bound.add(name)
    return used, bound


def _in_lines(statement: str) -> str:
    """An import, in several lines if it is long."""
    if len(statement) <= MAX_WIDTH:
        return statement
    head, _, names = statement.partition(" import ")
    return "\n".join([f"{head} import (", *(f"    {name}," for name in names.split(", ")), ")"])


def update() -> None:
    """Write the pages whose examples or docstrings have changed."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for path in PAGES:
        text = path.read_text()
        if (new := Page(text).updated()) != text:
            path.write_text(new)
            print(path.relative_to(ROOT))


# --- The reference shows docstrings
#
# A page names functions and classes by directives of Sphinx in a comment, from which the site makes its
# reference. A forge and an editor show what is written below: the same signatures and docstrings as code::
#
#    <!-- autodoc
#    .. autofunction:: django_pgqueue.enqueue
#    -->
#    ...
#    <!-- end autodoc -->


AUTODOC = re.compile(
    r"^<!-- autodoc\n(?P<directives>(?:.*\n)*?)-->\n(?:.*\n)*?<!-- end autodoc -->$", re.MULTILINE
)
#: ``autoclass``, path, signature, and the indented lines below: options, or a text in place of a docstring.
DIRECTIVE = re.compile(r"^\.\. (auto|py:)(\w+):: ([\w.]+)(\(.*\))?\n((?:(?: +.*)?\n)*)", re.MULTILINE)
ROLE = re.compile(r":[\w:]+:`~?(?:[\w.]+\.(?=\w+`))?([^`<]+?)(?: <[^`]*>)?`")
WIDTH = 100


def _block(block: re.Match[str]) -> str:
    found = [_shown(*directive) for directive in DIRECTIVE.findall(block["directives"])]
    code = "\n\n\n".join(found)
    return f"<!-- autodoc\n{block['directives']}-->\n```python\n{code}\n```\n<!-- end autodoc -->"


def _shown(origin: str, kind: str, path: str, arguments: str, body: str) -> str:
    """What one directive names, as a stub."""
    name = path.rpartition(".")[2]
    if origin == "py:":
        text = ROLE.sub(r"\1", dedent(body)).strip()
        return _stub(f"def {name}{arguments}:" if kind == "function" else f"class {name}:", text)
    value = import_string(path)
    if kind == "function":
        return _function(name, value, arguments)
    bases = [base.__name__ for base in value.__bases__ if issubclass(base, BaseException)]
    public = ", ".join(base for base in bases if not base.startswith("_"))
    head = f"class {name}({public}):" if public else f"class {name}:"
    given = re.search(r":members:(.*)", body)
    members = re.findall(r"\w+", given[1]) or value._fields if given else []
    return _stub(
        head, inspect.getdoc(value), [*_init(value, arguments), *(_member(value, each) for each in members)]
    )


def _init(cls: type, arguments: str) -> Iterator[str]:
    """How the class is called: as the page says, which may be nothing, or as the class declares."""
    if not arguments and "__init__" in vars(cls):
        arguments = _signature(cls)
    if arguments not in {"", "()"}:
        yield _wrapped(f"def __init__(self, {arguments[1:]}: ...")


def _function(name: str, function: Any, arguments: str = "") -> str:
    prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
    if inspect.isgeneratorfunction(inspect.unwrap(function)):
        prefix = f"@contextmanager\n{prefix}"
    return _stub(f"{prefix} {name}{arguments or _signature(function)}:", inspect.getdoc(function))


def _member(cls: type, name: str) -> str:
    """A method, property or field of a class."""
    value = inspect.getattr_static(cls, name, None)
    if isinstance(value, property | cached_property):
        getter = value.fget if isinstance(value, property) else value.func
        return f"@property\n{_function(name, getter)}"
    if isinstance(value, classmethod | staticmethod):
        return f"@{type(value).__name__}\n{_function(name, value.__func__)}"
    return _function(name, value) if inspect.isfunction(value) else _field(cls, name)


def _field(cls: type, name: str) -> str:
    """A name that the class or its ``__init__`` binds, with the string below it."""
    pattern = rf'^ +(?:self\.)?{name}(: .+?)?(?: = .*|  #.*)?\n(?: +"""((?:.|\n)*?)""")?'
    (kind, text) = re.findall(pattern, inspect.getsource(cls), re.MULTILINE)[0]
    return f'{name}{kind}\n"""{text.strip()}"""' if text else f"{name}{kind}"


def _signature(function: Any) -> str:
    # The annotations are strings, and are shown as the code has them.
    shown = re.sub(r"(?<=[:>] )'([^']*)'", r"\1", str(inspect.signature(function)))
    shown = shown.removesuffix(" -> None") if inspect.isclass(function) else shown
    return re.sub(r"<\w+>", "...", shown.replace("'", '"'))  # a default that is none of the values


def _stub(head: str, doc: str | None, members: list[str] | None = None) -> str:
    """A definition with a docstring and members."""
    parts = [f'"""{doc}"""' if "\n" not in doc else f'"""{doc}\n"""'] if doc else []
    return "\n".join([_wrapped(head), indent("\n\n".join([*parts, *(members or [])]), "    ")])


def _wrapped(head: str) -> str:
    """The beginning of a definition, in several lines if it is long. They end after a parameter."""
    *decorators, line = head.split("\n")
    kept = re.sub(r"(?<!,) |(?<=,) (?=[^[]*\])", "\0", line)
    lines = wrap(kept, WIDTH, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*decorators, *lines]).replace("\0", " ")


if __name__ == "__main__":
    update()
