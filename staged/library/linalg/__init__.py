"""Linear algebra on matrices in the last two axes."""
