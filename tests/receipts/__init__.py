"""An app whose models are payloads, with migrations that make their triggers."""
