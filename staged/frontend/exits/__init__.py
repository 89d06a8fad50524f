"""Exits: `return`, `break` and `continue`, the targets that they lead to, and what they may not leave."""
