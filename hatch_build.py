"""The README of the package, as PyPI shows it.

On a forge, its links and pictures are relative. Elsewhere they need the address of the repository, which
``[project.urls]`` in ``pyproject.toml`` contains once the owner has filled it in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The target of a link or a picture, in Markdown and in HTML, unless it is absolute or on the same page.
_RELATIVE = re.compile(r'(?P<before>\]\(|\b(?:src|srcset|href)=")(?!https?:|#|mailto:)(?P<path>[^)"\s]+)')
_PICTURES = (".webp", ".svg", ".png")


class ReadmeHook(MetadataHookInterface):
    """Gives the package its README."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if repository := metadata.get("urls", {}).get("Repository"):
            text = absolute(text, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, repository: str, tag: str) -> str:
    """Return a page whose links lead to the files of a tag in the repository."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["path"].endswith(_PICTURES) else "blob"
        return f"{found['before']}{repository.rstrip('/')}/{kind}/{tag}/{found['path']}"

    return _RELATIVE.sub(link, text)
