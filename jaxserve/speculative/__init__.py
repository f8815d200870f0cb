"""Speculative decoding: guess tokens, and let the model say in one step which of them are its own.

Plain Python: nothing here imports JAX.
"""
