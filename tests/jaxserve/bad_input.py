"""Every kind of bad input that the main job must refuse: arguments, and what the one line has to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.jaxserve import commands

TINY = ("--model", "random:tiny")


@dataclasses.dataclass(frozen=True)
class Case:
    """`make` prepares a folder and returns the arguments; the line must match `pattern`."""

    make: Callable[[Path], Sequence[str]]
    pattern: str


def options(*arguments: str) -> Callable[[Path], Sequence[str]]:
    return lambda folder: arguments


def prompts(name: str, content: str, *more: str) -> Callable[[Path], Sequence[str]]:
    def make(folder: Path) -> Sequence[str]:
        (folder / name).write_text(content)
        return (*TINY, "--prompt-file", name, *more)

    return make


def truncated_gguf(folder: Path) -> Sequence[str]:
    path = commands.gguf(folder / "m.gguf")
    commands.cut(path, commands.data_start(path) + 1000)
    return "--model", "m.gguf"


def truncated_safetensors(folder: Path) -> Sequence[str]:
    commands.cut(commands.folder(folder / "m") / "model.safetensors", 20)
    return "--model", "./m"


def config_without(key: str) -> Callable[[Path], Sequence[str]]:
    return lambda folder: ("--model", str(commands.folder(folder / "m", **{key: None}).relative_to(folder)))


def without_tokenizer(folder: Path) -> Sequence[str]:
    (commands.folder(folder / "m") / "tokenizer.json").unlink()
    return "--model", "./m"


GB = r"[\d.]+ GB"
PARTS = rf"{GB} weights in bfloat16, {GB} KV pool, {GB} workspace, {GB} process and programs"
MEMORY = rf"needs about {GB} of memory \({PARTS}\), but {GB} are available; lower"

CASES = {
    "report that is no page": Case(options(*TINY, "--report", "out.pdf"), r"--report is 'out\.pdf'; give .*html|plotly"),
    "missing model file": Case(options("--model", "./none.gguf"), r"\./none\.gguf: no such file or folder"),
    "missing model folder": Case(options("--model", "none/"), "none/: no such file or folder"),
    "missing prompt file": Case(
        options(*TINY, "--prompt-file", "none.txt"), r"none\.txt: no such file; give a UTF-8 text file"
    ),
    "truncated safetensors header": Case(truncated_safetensors, r"model\.safetensors: truncated .*; download it again"),
    "truncated GGUF tensor data": Case(truncated_gguf, r"m\.gguf: truncated: tensor \S+ ends at byte \d+ and the file at \d+;"),
    "wrong dtype": Case(options(*TINY, "--dtype", "int3"), "--dtype 'int3' is not supported; give auto, float32 or bfloat16"),
    "wrong KV dtype": Case(
        options(*TINY, "--kv-dtype", "int3"), "--kv-dtype 'int3' is not supported; give float32 or bfloat16"
    ),
    "config without a needed key": Case(config_without("hidden_size"), r"m/config\.json: .*hidden_size"),
    "config of another model": Case(
        lambda folder: ("--model", str(commands.folder(folder / "m", num_hidden_layers=3).relative_to(folder))),
        r"m: tensor model\.layers\.2\.\S+ .* is missing; the checkpoint is incomplete",
    ),
    "no tokenizer": Case(without_tokenizer, r"tokenizer\.json: no such file; save the tokenizer there"),
    "prompt longer than the context": Case(
        options(*TINY, "--context", "8"),
        r"prompt 1 has \d+ tokens and 64 are to follow, which needs .* but the limit is 8; shorten it",
    ),
    "more tokens than the model has positions": Case(
        options(*TINY, "--max-new-tokens", "1024"),
        r"a context of \d+ tokens, but random:tiny takes at most 1024; shorten the prompt or",
    ),
    "context beyond the model": Case(
        options(*TINY, "--context", "1025"), "--context is 1025; random:tiny takes 1 to 1024 tokens"
    ),
    "empty prompt": Case(prompts("p.jsonl", '{"prompt": ""}\n'), r"p\.jsonl, line 1: the prompt is empty; write"),
    "file without a prompt": Case(prompts("p.txt", "\n \n"), r"p\.txt: the file holds no prompt; write at least one"),
    "prompt file that is not JSON": Case(prompts("p.jsonl", "hello\n"), r"p\.jsonl, line 1: not valid JSON"),
    "batch 0": Case(options(*TINY, "--batch", "0"), "--batch is 0; it must be at least 1"),
    "batch 8,0": Case(options(*TINY, "--batch", "8,0"), "--batch is 0; it must be at least 1"),
    "batch that is no number": Case(
        options(*TINY, "--batch", "8,x"), "--batch is '8,x'; give a whole number or several, such as"
    ),
    "batch 100000": Case(options("--model", "random:smollm2-135m", "--batch", "100000", "--max-new-tokens", "900"), MEMORY),
    # More rows than a list of them could hold: the refusal must come from the prompts alone.
    "batch of a thousand millions": Case(options("--model", "random:smollm2-135m", "--batch", "1" + 9 * "0"), MEMORY),
    "page size 0": Case(options(*TINY, "--page-size", "0"), "--page-size is 0; it must be at least 1"),
    "no new tokens": Case(options(*TINY, "--max-new-tokens", "0"), "--max-tokens is 0; it must be at least 1"),
    # 8 billion parameters fit some machines; the cache of 4,096 long rows fits none.
    "more memory than there is": Case(
        options("--model", "random:llama-3-8b", "--batch", "4096", "--max-new-tokens", "4000"), "16.1 GB weights in bfloat16"
    ),
    "unknown model name": Case(
        options("--model", "smolm2"), r"'smolm2' is no model name and no such file exists; did you mean smollm2"
    ),
    "unknown preset": Case(options("--model", "random:tini"), "random:tini: no such preset; did you mean random:tiny"),
    "temperature below 0": Case(options(*TINY, "--temperature", "-1"), r"temperature is -1.0; it must lie in"),
    "temperature NaN": Case(options(*TINY, "--temperature", "nan"), r"temperature is nan; it must lie in"),
    "seed below 0": Case(options(*TINY, "--seed", "-1"), r"seed is -1; it must lie in \[0, 2\*\*32\)"),
    "show below 0": Case(options(*TINY, "--show", "-1"), "--show is -1; it must be at least 0"),
    "no number": Case(options(*TINY, "--context", "many"), "'--context': 'many' is not a valid integer"),
    "unknown option": Case(options("--bach", "8"), "No such option.*--bach"),
    "option without its value": Case(options("--batch"), "Option '--batch' requires an argument"),
    "argument": Case(options("smollm2"), r"unexpected extra argument \(smollm2\)"),
}
