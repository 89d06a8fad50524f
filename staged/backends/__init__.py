"""Back ends: IR to text. Each is a package of its own (`contract.py`), found by `registry.py`; a `*_family` is what
several share.
"""
