"""Tests run on the CPU where there is no accelerator, whatever compilers for other chips are installed beside JAX.

And hypothesis sets no deadlines: no test depends on how fast the machine is.
"""

from hypothesis import settings

from costmodel.accelerators import spare_jax_the_search

spare_jax_the_search()
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
