"""Compiling for less: most of a test's time is XLA's, and not every test asks something of the machine code."""

from __future__ import annotations

from typing import Final

# For `jax.jit(compiler_options=)` and `Lowered.compile`. XLA's own passes, and with them fusions, buffers and all that it reports of a
# program, are as ever; LLVM alone optimises nothing, which halves the time. For tests of memory and counts, and for those that hold
# small sums against an oracle with a tolerance; not for those in which two programs must agree to the last bit.
UNOPTIMISED: Final[dict[str, str | bool]] = {"xla_backend_optimization_level": "0"}
