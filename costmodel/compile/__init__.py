"""A step compiled for a chip that is here or not, and what XLA says of it: the second witness."""
