"""Ops in plain Python: the context that computes, its tape, and checks of gradients."""
