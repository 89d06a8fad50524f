"""The trace: what records a staged function, its attempts, and the state that constructs keep in it."""
