"""Which batch cap, on which chips, holds an SLO: by model first, then by simulation with the very scheduler that will run."""
