"""Functions of sequences: loops, attention, recurrent layers."""
