"""C text that generated programs share, as snippets: a program carries only those that it uses."""
