"""Activations, normalisation and complex numbers."""
