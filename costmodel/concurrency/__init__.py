"""Waiting: Little's law and queues, how long a batch takes to form, and what a static batch wastes in slots and bytes."""
