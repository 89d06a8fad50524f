"""Passes: IR to IR (simplify, normalise, place), and the memory plan (`memory/`)."""
