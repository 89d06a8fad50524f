"""The host part of every program: its file, its functions, their statements, and exports."""
