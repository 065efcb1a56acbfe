"""System checks that need no database."""
