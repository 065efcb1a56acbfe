"""Tests of what tells why a job does not run."""
