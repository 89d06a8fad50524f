"""The native back end: readable C11 that needs nothing but a compiler."""
