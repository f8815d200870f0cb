"""Tokens to text as an answer grows: bytes of tokens, whole characters, stop strings. Plain Python."""
