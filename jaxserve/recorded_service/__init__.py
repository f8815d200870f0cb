"""Services that others ran and recorded, request by request: reading them, simulating them, and saying how far off that is."""
