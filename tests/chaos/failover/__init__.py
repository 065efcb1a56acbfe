"""Servers under Patroni, faults of the leader under load, and what the ledger lost and repeated."""
