"""From text to a callable: find a compiler, compile, keep the result, load it, call it, and know the machine."""
