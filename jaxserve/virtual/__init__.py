"""What a simulation is made of: clients, clocks, workers and faults."""
