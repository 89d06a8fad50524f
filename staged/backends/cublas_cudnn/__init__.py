"""The back end for NVIDIA GPUs: fused kernels in CUDA, and the host program around them."""
