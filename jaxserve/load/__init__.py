"""Load: requests as they come, from traces or drawn, and what clients see of a server that gets them."""
