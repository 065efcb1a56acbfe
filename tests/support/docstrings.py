"""The reference shows docstrings: ``python3 dev.py examples`` writes them there, too.

A page names functions and classes by directives of Sphinx in a comment, from which the site makes its
reference. A forge and an editor show what is written below: the same signatures and docstrings as code::

    <!-- autodoc
    .. autofunction:: django_pgqueue.enqueue
    -->
    ...
    <!-- end autodoc -->
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from textwrap import dedent, indent, wrap
from typing import Any, NamedTuple

from django.utils.module_loading import import_string

AUTODOC = re.compile(
    r"^<!-- autodoc\n(?P<directives>(?:.*\n)*?)-->\n(?:.*\n)*?<!-- end autodoc -->$", re.MULTILINE
)
#: ``autoclass``, path, signature, and the indented lines below: options, or a text in place of a docstring.
DIRECTIVE = re.compile(r"^\.\. (auto|py:)(\w+):: ([\w.]+)(\(.*\))?\n((?:(?: +.*)?\n)*)", re.MULTILINE)
ROLE = re.compile(r":[\w:]+:`~?(?:[\w.]+\.(?=\w+`))?([^`<]+?)(?: <[^`]*>)?`")
MAX_WIDTH = 100


class Verbatim(NamedTuple):
    """An annotation, as the code has it."""

    text: str

    def __repr__(self) -> str:
        return self.text


def updated(text: str) -> str:
    """Return a page with its docstrings as the code has them."""
    return AUTODOC.sub(_block, text)


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
    tree = ast.parse(dedent(inspect.getsource(cls)))
    for body in (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)):
        for node, below in zip_longest(body, body[1:]):
            if not isinstance(node, ast.AnnAssign | ast.Assign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) in {name, f"self.{name}"}:
                kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                match below:
                    case ast.Expr(ast.Constant(str(text))):
                        return f'{name}{kind}\n"""{text.strip()}"""'
                return f"{name}{kind}"
    raise LookupError(f"{cls.__name__} has no {name}")


def _signature(function: Any) -> str:
    def verbatim(annotation: Any) -> Any:
        return Verbatim(annotation) if isinstance(annotation, str) else annotation

    found = inspect.signature(function)
    parameters = [each.replace(annotation=verbatim(each.annotation)) for each in found.parameters.values()]
    returned = inspect.Signature.empty if inspect.isclass(function) else verbatim(found.return_annotation)
    shown = str(found.replace(parameters=parameters, return_annotation=returned))
    return re.sub(r"<\w+>", "...", shown.replace("'", '"'))  # a default that is none of the values


def _stub(head: str, doc: str | None, members: list[str] | None = None) -> str:
    """A definition with a docstring and members."""
    parts = [f'"""{doc}"""' if "\n" not in doc else f'"""{doc}\n"""'] if doc else []
    return "\n".join([_wrapped(head), indent("\n\n".join([*parts, *(members or [])]), "    ")])


def _wrapped(head: str) -> str:
    """The beginning of a definition, in several lines if it is long. They end after a parameter."""
    *decorators, line = head.split("\n")
    kept = re.sub(r"(?<!,) |(?<=,) (?=[^[]*\])", "\0", line)
    lines = wrap(kept, MAX_WIDTH, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*decorators, *lines]).replace("\0", " ")
