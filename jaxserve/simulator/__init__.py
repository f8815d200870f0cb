"""The engine's own scheduling on a virtual clock: clients, clock, workers, faults, and `run`."""
