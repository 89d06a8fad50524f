"""`vmap` fulfilled: IR for one element becomes IR for a whole axis of elements.

`spread.py` finds the values that depend on a mapped one; `batch.py` writes the batched block, by the rules that each
kind of structured op has in a file of its own (`branches.py`, `loops.py`, `calls.py`, ...); `rules.py` and
`indexing.py` say how primitives take a leading axis.
"""
