"""What a decode step costs: the chip, the analytical model, the compiled program's own count, and the clock."""
