"""Ranks of an MPI program: replicated and local values, and the messages between ranks."""
