"""Messages of errors that programs, interpreters and eager mode share. `%lld` is the place of an integer in C."""

OUT_OF_RANGE = {
    "index": "index %lld is out of range for an axis of %lld elements",
    "label": "label %lld is out of range for %lld classes (a loss leaves out the rows of its `ignore_index`)",
    "letter": "label %lld is out of range for an alphabet of %lld, the blank among them",
    "length": "length %lld is out of range: there are %lld lengths, from 0 to the whole axis",
    "start": "a slice from %lld on is out of range: it fits at %lld places",
}
"""Messages for an index out of range, by its meaning; only an `index` may be negative."""
NO_ELEMENTS = "{} of no elements has no value"
"""The message for an extreme, by name, of no elements."""
