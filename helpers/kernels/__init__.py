"""Triton kernels, one operation a file: reference, least traffic, kernels, wrappers."""
