"""`st.special`: special functions, by the names of SciPy's and torch's `special`.

Those that `st` has too are the same functions. All are elementwise, except the sums of exponentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.library.elementwise.activations import log_softmax, logsumexp, softmax
from staged.library.elementwise.activations import sigmoid as expit
from staged.library.special.bessel import i0, i0e, i1, i1e
from staged.library.special.elementary import entr, exp2, logit, sinc, xlog1py, xlogy
from staged.library.special.error_functions import erfcx, erfinv, log_ndtr, ndtr, ndtri
from staged.library.special.gamma_functions import betaln, digamma, polygamma
from staged.library.special.gamma_functions import digamma as psi
from staged.library.special.gamma_functions import lgamma as gammaln
from staged.library.special.gamma_functions import mvlgamma as multigammaln
from staged.ops.elementwise import erf, erfc, expm1, log1p

__all__ = [
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("special", __all__)
