"""Fourier transforms and convolutions of vectors."""
