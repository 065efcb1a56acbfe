"""Tests of the worker within one process: claim, run, finish."""
