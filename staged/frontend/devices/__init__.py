"""Arrays of Python that live on a device, and the options of regions."""
