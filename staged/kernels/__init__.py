"""Fusion groups become loop nests; a machine description becomes their schedule."""
