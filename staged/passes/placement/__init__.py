"""Placement: the device of every value and op, and the copies between devices."""
