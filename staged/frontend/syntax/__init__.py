"""Syntax in, syntax out: the engine of the conversion, and what it asks of sources and names. It knows no trace."""
