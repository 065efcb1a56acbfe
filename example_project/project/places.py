"""The path of the project, and the folders where it keeps the files that it creates."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VAR = Path(os.environ.get("EXAMPLE_VAR") or ROOT / "var")
EMBEDDED_SERVER = VAR / "postgres"
