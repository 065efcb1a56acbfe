"""What people declare: tasks, their options and keys, and the backend that finds them."""

from __future__ import annotations
