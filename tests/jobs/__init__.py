"""Tests of the life of a job: enqueue, claim, finish, and control from outside."""
