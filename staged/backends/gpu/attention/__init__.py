"""Attention as kernels of our own: the sizes of their blocks, their text, and which attention takes them."""
