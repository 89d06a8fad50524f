"""Source code that every back end prints: trees of code, C expressions, loop nests, and support functions of C."""
