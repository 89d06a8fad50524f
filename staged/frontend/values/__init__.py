"""Values of a trace: trees, objects, Variables, generators; how paths join them, and how changes are undone."""
