"""Files of arrays and modules, and of exported programs."""
