"""Folders with a tokenizer, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")  # ids 0 to 3; then 256 bytes
SIZE = 260
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def pipeline(**model: Any) -> tokenizers.Tokenizer:
    """A byte-level tokenizer whose encoded texts begin with <s>."""
    vocabulary = {text: i for i, text in enumerate(SPECIAL)}
    vocabulary |= {text: len(SPECIAL) + i for i, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], **model))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.add_special_tokens(list(SPECIAL))
    return backend


def write(folder: Path, backend: tokenizers.Tokenizer | None = None, /, **settings: Any) -> Path:
    """tokenizer.json, and tokenizer_config.json with `settings`."""
    folder.mkdir(parents=True, exist_ok=True)
    (backend or pipeline()).save(str(folder / "tokenizer.json"))
    return put(folder, "tokenizer_config.json", settings)


def put(folder: Path, name: str, value: Any) -> Path:
    """A JSON file, or a text."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder
