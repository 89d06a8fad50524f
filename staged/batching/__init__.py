"""`vmap` fulfilled: IR for one element becomes IR for a whole axis of elements.

`spread.py` finds which values depend on what is mapped; `vmap.py` writes the batched block; `rules.py` and `indexing.py`
say how each kind of op takes a leading axis; `branches.py` and `loops.py` do so for control flow.
"""
