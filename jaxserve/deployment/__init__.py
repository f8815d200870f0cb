"""What a simulated load runs on: a policy over the KV pages of chips, and where its step times come from."""
