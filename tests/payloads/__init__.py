"""Tests of `django_pgqueue.payloads`: rows that are jobs."""
