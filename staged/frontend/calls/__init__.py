"""Calls: a function is converted and called, in place or as a function of the program."""
