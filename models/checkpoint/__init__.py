"""Where weights come from: safetensors folders, GGUF files, random ones. Start at `sources.open_checkpoint` and `load.load`."""
