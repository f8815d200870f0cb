"""What a model is: `ModelConfig`, the presets, and the readers of Hugging Face's config.json. One entry an architecture."""
