"""The tensor IR: types, nodes, builder, printer, verifier, rewriting; and the machine as data."""
