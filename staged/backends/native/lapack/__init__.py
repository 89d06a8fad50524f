"""Factors of matrices as calls of the LAPACK that a user links."""
