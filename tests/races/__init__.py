"""Forced interleavings on real connections. Each of these tests was seen to fail without its guard."""
