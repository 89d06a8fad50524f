"""The memory plan: which values share a buffer, and where each buffer lies."""
