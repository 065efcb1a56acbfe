"""Ask for known vulnerabilities of everything that is installed with the package.

Needs `pip-audit`, and a network in which PyPI answers with advisories. Mirrors often have none, and pip-audit
then says that nothing was found. So it is first asked about a version that is known to be vulnerable. If
nothing is found for that either, the audit is skipped, which is printed: an index that is silent or away
is no fault of a change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

OURS = "dj-pgqueue"
KNOWN = "jinja2==2.10"  # CVE-2019-10906 and others


def main() -> int:
    """Print what was found, and return the exit code."""
    if not vulnerable(advisories([KNOWN])):
        print(f"SKIPPED: audit: the index knows no advisories, not even for {KNOWN}")
        return 0
    found = advisories(installed())
    bad, unknown = vulnerable(found), skipped(found)
    for line in bad:
        print(line)
    if unknown:
        print(f"The index does not know {', '.join(unknown)}.")
    print(f"{len(found)} packages, {len(bad)} with known vulnerabilities.")
    return int(bool(bad or unknown))


def installed() -> list[str]:
    """Return what is installed here, but this package, as requirements."""
    pins = {f"{each.metadata['Name']}=={each.version}" for each in distributions()}
    return sorted(pin for pin in pins if not pin.startswith(f"{OURS}=="))


def advisories(requirements: Iterable[str]) -> list[dict[str, Any]]:
    """Return what pip-audit knows of each of them. Nothing if it cannot ask."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(requirements))
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--disable-pip",
            "--no-deps",
            "--progress-spinner",
            "off",
        ]
        done = subprocess.run(
            [*command, "--format", "json", "-r", str(listed)], check=False, capture_output=True, text=True
        )
    if not done.stdout.strip():
        print(done.stderr.strip().rpartition("\n")[2])
        return []
    dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return dependencies


def vulnerable(found: list[dict[str, Any]]) -> list[str]:
    """Return a line for each package with vulnerabilities."""
    return [
        f"{each['name']} {each['version']}: {', '.join(map(_words, each['vulns']))}"
        for each in found
        if each.get("vulns")
    ]


def _words(one: dict[str, Any]) -> str:
    return f"{one['id']} (fixed in {', '.join(one['fix_versions']) or 'no version'})"


def skipped(found: list[dict[str, Any]]) -> list[str]:
    """Return the names that the index does not know."""
    return [each["name"] for each in found if "skip_reason" in each]


if __name__ == "__main__":
    sys.exit(main())
