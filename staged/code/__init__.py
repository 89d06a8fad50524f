"""What every back end prints: trees of code, C expressions, loop nests, and the support functions of C."""
