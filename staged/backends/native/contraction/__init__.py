"""Matrix products and convolutions of the native back end: specs in, C text out."""
