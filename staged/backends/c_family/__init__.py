"""Shared by every C-like back end: the writer, C expressions, loop kernels, support snippets."""
