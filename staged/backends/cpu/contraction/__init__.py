"""Matrix products and convolutions as C kernels: specs in, C text out."""
