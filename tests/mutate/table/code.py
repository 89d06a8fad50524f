"""Planted faults of the trees of code between loop nests and text: what is asked of them, and how they are printed."""

from tests.mutate.mutant import Mutant

CODE = "staged/backends/c_family/code/"
TESTS = "tests/backends/c_family/code/"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a parameter that only a condition reads counts as unused",
        f"{CODE}uses.py",
        "case Do(expr) | If(expr):",
        "case Do(expr):",
        (f"{TESTS}test_uses.py",),
    ),
    Mutant(
        "a check goes with its unused result",
        f"{CODE}unused.py",
        "elif s.has_effects:",
        "elif False:",
        (f"{TESTS}test_unused.py",),
    ),
    Mutant(
        "two kernels that read each other's arrays are one",
        f"{CODE}shape.py",
        'f"${len(self.numbers)}"',
        '"$"',
        (f"{TESTS}test_shape.py",),
    ),
    Mutant(
        "the other side of a branch is not looked at",
        f"{CODE}tree.py",
        "                yield from walk(other)\n",
        "",
        (f"{TESTS}test_uses.py",),
    ),
    Mutant(
        "pointers are cast in C too",
        f"{CODE}printer.py",
        "if self.dialect.needs_casts and isinstance(s.value, Cast)",
        "if isinstance(s.value, Cast)",
        (f"{TESTS}test_printer.py",),
    ),
    Mutant(
        "an index into a device's array points into the host's memory",
        "staged/backends/gpu_family/addresses.py",
        'case Infix("+", base) | Group(base) | Cast(_, base):',
        "case Group(base) | Cast(_, base):",
        ("tests/backends/gpu_family/test_addresses.py",),
    ),
    Mutant(
        "a graph keeps an address that changes with the loop",
        "staged/backends/cublas_cudnn/graphs.py",
        'case Infix("+", base, Literal()):',
        'case Infix("+", base):',
        ("tests/backends/gpu_family/test_addresses.py",),
    ),
    Mutant(
        "a pointer to what changes has the name of a local",
        "staged/backends/gpu_family/kernel_text.py",
        "while place in taken:",
        "while place in ():",
        ("tests/backends/gpu_family/test_kernel_text.py",),
    ),
)
