"""Actions on jobs: what they do, the confirmation, and the way through many jobs in the background."""
