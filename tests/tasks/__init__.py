"""Tests of what people declare: tasks, their options, keys and links."""
