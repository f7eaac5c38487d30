"""What instances live through: made, changed, stopped, repaired, deleted."""
