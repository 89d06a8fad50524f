"""Matrix products and convolutions as calls of NVIDIA's libraries."""
