"""Code as a tree: what stands between loop nests and text (`tree`), passes over it (`uses`, `shape`), and its
printer."""
