"""Tests run on the CPU where there is no accelerator, whatever compilers for other chips are installed beside JAX."""

from costmodel.accelerators import spare_jax_the_search

spare_jax_the_search()
