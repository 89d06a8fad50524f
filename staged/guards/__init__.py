"""When a call may run the program that it ran before: what a trace read from outside, and a check that it is as it was.

`reads` collects what the front end notes while it traces; `expected` says when a value is as it was; `check` makes one Python
function of all guards; `entries` keeps the programs of a staged function.
"""
