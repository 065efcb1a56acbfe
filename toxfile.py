"""tox: with CI=true an interpreter that is missing is a failure, not a skip."""

from __future__ import annotations

import os

from tox.config.sets import ConfigSet
from tox.plugin import impl
from tox.session.state import State


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Override what tox.ini says for one's own machine."""
    if os.environ.get("CI") == "true":
        state.conf.options.skip_missing_interpreters = "false"
