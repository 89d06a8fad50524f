"""Loop nests become trees of code: the state of one (`lowering`), and small objects that each lower some of its statements."""
