"""Tests of what a worker claims, what it reports, and how it sleeps."""
