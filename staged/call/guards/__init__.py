"""Guards: whether a call may reuse the program of an earlier trace, because all that the trace read is unchanged.

`reads` records the reads from outside that the front end reports while tracing; `expected` describes a value and says
when another equals it; `check` compiles all guards of a trace to one Python function.
"""
