"""Packages that run their tasks on this queue, or change how Django works: ``tox run -e wagtail``.

They need settings of their own, so each module of tests is run with settings beside it.
"""
