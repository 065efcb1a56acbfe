"""Django's own admin, as those of the themes see it: without a content security policy, which they break."""

from __future__ import annotations

from tests.browser.settings import *  # noqa: F403
from tests.browser.settings import MIDDLEWARE as STRICT

MIDDLEWARE = [each for each in STRICT if not each.endswith("strict_policy")]
