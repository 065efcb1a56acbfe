"""Helpers for the tests: separate connections, forced interleavings, query plans, and more."""
