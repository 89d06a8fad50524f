"""Functions of windows and images: convolution of volumes, pooling, padding, interpolation."""
