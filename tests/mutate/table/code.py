"""Planted faults of the trees of code between loop nests and text: what is asked of them, and how they are printed."""

from tests.mutate.mutant import Mutant

TESTS = "tests/code/"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a parameter that only a condition reads counts as unused",
        "code.uses:expressions_of",
        "case Do(expr) | If(expr): ...",
        "case Do(expr): ...",
        (f"{TESTS}test_uses.py",),
    ),
    Mutant(
        "a check goes with its unused result",
        "code.unused:_without",
        "s.has_effects",
        "False",
        (f"{TESTS}test_unused.py",),
    ),
    Mutant(
        "two kernels that read each other's arrays are one",
        "code.shape:Numbered.number",
        'f"${len(self.numbers)}"',
        '"$"',
        (f"{TESTS}test_shape.py",),
    ),
    Mutant(
        "the other side of a branch is not looked at",
        "code.tree:walk",
        "yield from walk(other)",
        "",
        (f"{TESTS}test_uses.py",),
    ),
    Mutant(
        "pointers are cast in C too",
        "code.printer:Printer.declared",
        "self.dialect.needs_casts and isinstance(s.value, Cast) and s.value.type == VOID",
        "isinstance(s.value, Cast) and s.value.type == VOID",
        (f"{TESTS}test_printer.py",),
    ),
    Mutant(
        "an index into a device's array points into the host's memory",
        "backends.gpu.addresses:device_of",
        'case Infix("+", base) | Group(base) | Cast(_, base): ...',
        "case Group(base) | Cast(_, base): ...",
        ("tests/backends/gpu/test_addresses.py",),
    ),
    Mutant(
        "a graph keeps an address that changes with the loop",
        "backends.cublas_cudnn.steps:is_fixed",
        "is_fixed(base, captured) and is_written_out(offset, captured)",
        "is_fixed(base, captured)",
        ("tests/backends/gpu/test_addresses.py",),
    ),
    Mutant(
        "a pointer to what changes has the name of a local",
        "backends.gpu.kernel_text:GpuKernel.reading",
        "place in taken",
        "place in ()",
        ("tests/backends/gpu/test_kernel_text.py",),
    ),
)
