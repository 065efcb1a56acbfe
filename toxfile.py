"""A tox plugin: with CI=true, a missing interpreter is a failure instead of a skip."""

from __future__ import annotations

import os

from tox.config.sets import ConfigSet
from tox.plugin import impl
from tox.session.state import State


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Override the value in tox.ini, which is meant for a developer's own machine."""
    if os.environ.get("CI") == "true":
        state.conf.options.skip_missing_interpreters = "false"
