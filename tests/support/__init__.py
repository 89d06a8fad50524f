"""A table of what is supported, found out by running it: function by dtype, transform and back end."""
