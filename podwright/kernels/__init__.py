"""Kernels for one kind of accelerator each: one file a kernel, with the rule that says where it runs."""
