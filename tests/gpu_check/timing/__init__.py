"""The measurements of the step `times`: kernels and training steps, ours and PyTorch's, each job in a separate process."""
