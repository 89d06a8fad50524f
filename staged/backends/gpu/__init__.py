"""Shared by back ends for GPUs: parallel items of a nest, their schedules, launches, and joined launches."""
