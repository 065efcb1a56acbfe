"""The adapters of other queues. Each runs in an environment of its own, with pinned versions."""
