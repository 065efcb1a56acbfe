"""Programs that measure. Each can be run again by a stranger, and says what it did."""
