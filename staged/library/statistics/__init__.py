"""Running, sorted and grouped values of arrays."""
