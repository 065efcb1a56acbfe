"""The example project: a search engine for a folder of text files."""

from __future__ import annotations
