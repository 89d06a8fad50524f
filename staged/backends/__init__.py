"""Back ends: IR to text. Each is a package of its own, found through the registry in `staged.pipeline`."""
