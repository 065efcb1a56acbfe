"""Short rounds of upkeep that any supervisor may do."""
