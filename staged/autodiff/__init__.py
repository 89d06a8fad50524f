"""Derivatives as IR to IR: `fulfil_transforms` replaces every recorded transform by plain IR."""

from staged.autodiff.fulfil import fulfil_transforms

__all__ = ["fulfil_transforms"]
