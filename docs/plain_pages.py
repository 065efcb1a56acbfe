"""A Sphinx extension: the site has each page as Markdown too, and ``llms.txt`` lists them for programs.

The page ``howto/unique.html`` is also at ``howto/unique.md``, as it is in the repository. Only what a reader
of Markdown could not follow is replaced: the changelog is included, and a list of pages is a list of links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.osutil import relative_uri

DIRECTIVE = re.compile(r"^```\{(include|toctree)\}(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
COMMENT = re.compile(r"^ *<!-- .*?-->\n", re.MULTILINE | re.DOTALL)
AUTODOC = re.compile(r"^<!-- autodoc\n(.*?)-->\n.*?^<!-- end autodoc -->$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r"^:caption: (.*)", re.MULTILINE)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", use_autodoc)
    app.connect("html-page-context", name_plain_page)
    app.connect("build-finished", write_plain_pages)


def use_autodoc(app: Sphinx, page: str, source: list[str]) -> None:
    """Let the HTML have links and an index of what the pages show as code."""
    source[0] = AUTODOC.sub(r"```{eval-rst}\n\1```", source[0])


def name_plain_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the HTML name its Markdown."""
    if page in app.env.found_docs:
        uri = relative_uri(app.builder.get_target_uri(page), f"{page}.md")
        context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{uri}">'


def write_plain_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the pages and their list after the HTML."""
    if error is not None or app.builder.format != "html":
        return
    for page in app.env.found_docs:
        text = plain(app, page)
        if "```{" in text:
            raise ExtensionError(f"{page}: only Sphinx knows a directive of this page")
        Path(app.outdir, f"{page}.md").write_text(text)
    Path(app.outdir, "llms.txt").write_text("\n".join(listed(app)) + "\n")


def plain(app: Sphinx, page: str) -> str:
    """The Markdown of a page."""
    source = Path(app.env.doc2path(page))

    def replaced(directive: re.Match[str]) -> str:
        name, argument, body = directive.groups()
        if name == "include":
            return (source.parent / argument.strip()).read_text().strip()
        links = [f"- [{title}]({entry}.md)" for title, entry in entries(app, body)]
        return "\n".join([*CAPTION.findall(body), "", *links])

    return DIRECTIVE.sub(replaced, COMMENT.sub("", source.read_text()))


def entries(app: Sphinx, body: str) -> Iterator[tuple[str, str]]:
    """The titles and pages of a toctree."""
    for line in body.splitlines():
        named = re.fullmatch(r"(.+) <(.+)>", line)
        page = named[2] if named else line
        if page in app.env.titles:
            yield (named[1] if named else app.env.titles[page].astext()), page


def listed(app: Sphinx) -> Iterator[str]:
    """The lines of ``llms.txt``: https://llmstxt.org has their form."""
    source = Path(app.env.doc2path("index")).read_text()
    yield from (f"# {app.config.project}", "", f"> {summary(source)}")
    for name, _, body in DIRECTIVE.findall(source):
        if name == "toctree" and (caption := CAPTION.search(body)):
            yield from ("", f"## {caption[1]}", "")
            for title, page in entries(app, body):
                text = summary(plain(app, page))
                yield f"- [{title}]({page}.md): {text}"


def summary(markdown: str) -> str:
    """The first sentence of a page."""
    prose = re.sub(r"^ *```.*?^ *```$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    paragraph = next((part for part in prose.split("\n\n") if re.match(r"\n*[\w`*[]", part)), "")
    text = LINK.sub(r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0].rstrip(":")
