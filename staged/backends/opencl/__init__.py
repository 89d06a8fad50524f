"""The OpenCL back end: kernels in OpenCL C, started by a host part in C."""
