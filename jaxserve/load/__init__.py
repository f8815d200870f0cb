"""Load: requests as they come, from traces that others recorded."""
