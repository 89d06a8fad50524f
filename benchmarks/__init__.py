"""The same work in `staged`, PyTorch, JAX and NumPy, measured one after another on one machine.

`python -m benchmarks` runs all of it; `docs/benchmarks.md` says how to read the result.
"""
