"""Facts about an address in the host's code: the memory that it points into, and the struct that it was read from."""

from __future__ import annotations

from staged.code.expr import Cast, Expr, Group, Index, Infix, Member, Place
from staged.ir.types import CPU, Device


def device_of(address: Expr) -> Device:
    """The device into whose memory an address points; the host where nothing else is said."""
    while not isinstance(address, Place):
        match address:
            case Infix("+", base) | Group(base) | Cast(_, base):
                address = base
            case _:
                return CPU
    return address.device


def bare(expr: Expr) -> Expr:
    """An expression without what is known of it as an address."""
    return expr.expr if isinstance(expr, Place) else expr


def field_of(address: Expr) -> Member | None:
    """The field of a struct that an address begins with, or is in: `args->x` of `args->x + 5` and of `args->x[2].w`;
    None for others.
    """
    while True:
        match address:
            case Infix("+", base) | Group(base) | Place(base) | Index(base) | Member(base, arrow=False):
                address = base
            case Member(arrow=True):
                return address
            case _:
                return None
