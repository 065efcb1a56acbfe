"""Where the project lies, and where it keeps what it makes."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VAR = ROOT / "var"
EMBEDDED_SERVER = VAR / "postgres"
