"""Optimised HLO as XLA prints it: the parser, shapes, XLA's own rules for FLOPs and bytes, and trip counts of loops.

Nothing here knows a model or a chip."""
