"""Rolling: equal layers, one after another, become a loop over families of Variables.

- `repeats.py` finds runs of equal ops;
- `pieces.py` compares the pieces of a run value by value: what each passes to the next, and what differs;
- `families.py` finds what supplies the values that differ: Variables, captures, gradients, results of other loops;
- `roll.py` writes the program with the loops.
"""
