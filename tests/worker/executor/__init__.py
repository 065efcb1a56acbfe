"""Tests of everything around one job while it runs."""
