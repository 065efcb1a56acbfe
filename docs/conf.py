"""How Sphinx builds these pages: ``sphinx-build --fail-on-warning -b html docs docs/_build/html``.

No network is needed: nothing is linked across projects, so names of other people's projects are told below
not to be looked up, while a wrong name of ours is an error.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import django
from django.conf import settings
from pygments.lexers.sql import PostgresLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # these pages are about this checkout, whatever is installed
sys.path.insert(0, str(ROOT / "docs"))  # has extensions

import django_pgqueue  # noqa: E402

urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]

if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django_pgqueue"],
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "never_asked"}},
    )
    django.setup()

project = "django_pgqueue"
author = "The django_pgqueue contributors"
copyright = author
version = release = django_pgqueue.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "plain_pages", "search_words"]
exclude_patterns = ["_build", "decisions", "examples"]
html_theme = "furo"
html_title = f"django_pgqueue {version}"
html_baseurl = urls.get("Documentation", "")
# Each page has links to its source.
html_theme_options = {
    f"source_{what}_link": f"{urls['Repository']}/{folder}/main/docs/{{filename}}"
    for what, folder in (("view", "blob"), ("edit", "edit"))
    if "Repository" in urls
}
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["pgqueue.css"]
html_js_files = [("theme.js", {"defer": "defer"})]
html_logo = html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["tasklist"]  # boxes in the production checklist, as on a forge
myst_heading_anchors = 6  # as a forge gives them

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False

nitpicky = True
nitpick_ignore_regex = [
    # Python's, Django's, and our private names and type variables in signatures.
    ("py:.*", r"(collections|contextlib|datetime|typing|builtins|django|asgiref|psycopg)(\..*)?"),
    (
        "py:.*",
        r"(.*\.)?(P|R|R_co|P\.args|P\.kwargs|Self|Any|Backoff|OnLost|OnConflict|OnFull|Unchanged|Duration|Key|ExceptionTypes|Jobs|JobValues|UsingOptions)",
    ),
    ("py:.*", r"(.*\.)?(datetime|timedelta|Mapping|Iterable|Callable|Sequence|TaskResult|BaseTaskBackend)"),
    (
        "py:.*",
        r"(.*\.)?(AnyTask|GenericTask|QuerySet|How|Job|Limit|Pause|Worker|EnqueueOutcome|_Decorator|_ContextDecorator|StepFunction|_StepMaker)",
    ),
    (
        "py:.*",
        r"(.*\.)?(After|BatchLike|IfFailed|JobQuerySet|JobBatch|Progress|current\.T|limits\.T|Tracked)",
    ),
]


def setup(app: Sphinx) -> None:
    app.add_lexer("sql", PostgresLexer)
