"""From text to token ids and back: tokenizers of Hugging Face and GGUF, chat templates and the sandbox that runs them."""
