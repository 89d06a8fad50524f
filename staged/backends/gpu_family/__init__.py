"""What back ends for GPUs share: which items of a nest run side by side, their schedules, launches, and what joins in one launch."""
