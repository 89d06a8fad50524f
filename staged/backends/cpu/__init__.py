"""Kernels on a CPU: nests in vectors, and templates of products and convolutions."""
