"""One module per framework; each is imported only in the process that measures it."""
