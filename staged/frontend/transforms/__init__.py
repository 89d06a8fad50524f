"""The transforms of functions, with JAX's names and meaning: each is recorded as one op with a block, fulfilled later.

In eager mode and in plain Python the same functions run at once: derivatives on the tape, `vmap` as a loop over rows.
"""

from staged.frontend.transforms.checkpoint import checkpoint
from staged.frontend.transforms.custom_vjp import custom_vjp
from staged.frontend.transforms.gradient import grad, stop_gradient, value_and_grad
from staged.frontend.transforms.jacobian import hessian, jacfwd, jacrev
from staged.frontend.transforms.jvp import jvp
from staged.frontend.transforms.vjp import vjp
from staged.frontend.transforms.vmap import vmap

__all__ = [
    "checkpoint",
    "custom_vjp",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
