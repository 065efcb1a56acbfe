"""Tests of what is about PostgreSQL alone: sessions, dead connections, clocks, settings."""
