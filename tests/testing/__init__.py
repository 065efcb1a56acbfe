"""Tests of what the package gives to the tests of a project."""
