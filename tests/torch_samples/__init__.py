"""torch's own samples of its ops (`op_db`) on the functions of `staged` that have their names."""
