"""What every C-like back end shares: the writer, C expressions, loop kernels, support snippets."""
