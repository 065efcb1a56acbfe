"""``python -m benchmarks.public``."""

from __future__ import annotations

import sys

from benchmarks.public.driver import main

if __name__ == "__main__":
    main(sys.argv[1:])
