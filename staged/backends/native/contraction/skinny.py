from __future__ import annotations
from staged.backends.native.contraction.spec import KernelText, MatmulSpec
from staged.ir.machine import Machine
def applies(spec: MatmulSpec, machine: Machine) -> bool: return False
def emit_skinny(spec: MatmulSpec, machine: Machine) -> KernelText: raise AssertionError
