"""Random programs made of many small functions, drawn from the declarations, and the oracles that they are held against."""
