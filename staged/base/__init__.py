"""Modules that every layer may import, besides `errors.py` and `source.py`."""
