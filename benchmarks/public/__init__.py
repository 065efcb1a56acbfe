"""The public harness: several queues under the same phases, on one server, one after the other.

``README.md`` describes the phases, the figures and the contract that an adapter fulfills. The modules that an
adapter needs (``contract``, ``latencies``, ``leash``, ``pacing``, ``replica``, ``reports``) use the standard
library only, because the adapters of other queues run in environments of their own.
"""
