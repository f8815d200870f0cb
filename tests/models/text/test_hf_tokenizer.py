"""The tokenizer of a Hugging Face folder: what each file and key gives, and what is passed over.

Oracles: ids of a vocabulary of bytes, by hand; the table of docs/models.md, written for people; transformers, where it is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from models.checkpoint.safetensors import SafetensorsCheckpoint
from models.errors import UserError
from models.files.provenance import Ignored, Key
from models.text.hf_tokenizer import ends_of, from_folder
from models.text.text_keys import FILES, GENERATION_CONFIG, KEYS, SPECIAL_TOKENS_MAP, TOKENIZER, TOKENIZER_CONFIG
from models.text.tokenizer import Tokenizer
from tests.models import checkpoints
from tests.models.folders import CHATML, SIZE, pipeline, put, write

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
HI = [{"role": "user", "content": "hi"}]
TEXT = "It's a text of 43 bytes, quite exactly: yes"
READ: dict[tuple[str, str], Callable[..., None]] = {}  # (file, key) -> the test of a row that is read


def reads(file: str, *keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks the test that holds a row of the tables."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        READ.update(dict.fromkeys(((file, key) for key in keys), test))
        return test

    return mark


def told(tokenizer: Tokenizer) -> tuple[Any, ...]:
    """All that a file could change."""
    try:
        chat = tokenizer.render_chat(HI)
    except UserError as error:
        chat = str(error)
    ids = [tokenizer.encode(text) for text in (TEXT, "a <s> b<|im_end|> <new>", " x .")]
    return ids, chat, tokenizer.eos_tokens, [tokenizer.decode(each) for each in ids], tokenizer.bos_token


# ---- what is read: tokenizer.json


@reads(TOKENIZER, "model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")
def test_every_part_of_the_pipeline_is_read(tmp_path: Path):
    backend = pipeline()
    backend.normalizer = tokenizers.normalizers.Lowercase()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.add_special_tokens(["<new>"])
    tokenizer = from_folder(write(tmp_path, backend))
    ids = pipeline().get_vocab()
    assert tokenizer.encode("A<new>") == [0, ids["Ġ"], ids["a"], SIZE]
    assert tokenizer.decode([ids["Ġ"], ids["a"]]) == " a"


@pytest.mark.parametrize("state", ["truncation", "padding", "model.dropout"])
def test_a_training_runs_state_is_reset(tmp_path: Path, state: str):
    """43 bytes are 43 tokens and <s>, in a chat too, however the file was saved; and twice the same."""
    backend = pipeline(dropout=0.9) if state == "model.dropout" else pipeline()
    if state == "truncation":
        backend.enable_truncation(8)
    if state == "padding":
        backend.enable_padding(length=64)
    plain = from_folder(write(tmp_path / "plain", chat_template="{{ messages[0].content }}"))
    tokenizer = from_folder(write(tmp_path / "left", backend, chat_template="{{ messages[0].content }}"))
    assert len(TEXT) == 43
    assert tokenizer.encode(TEXT) == plain.encode(TEXT) and len(tokenizer.encode(TEXT)) == 44
    assert tokenizer.encode_prompt(TEXT) == plain.encode_prompt(TEXT) and len(tokenizer.encode_prompt(TEXT)) == 43
    assert tokenizer.backend.truncation is None and tokenizer.backend.padding is None
    assert [entry[:2] for entry in tokenizer.provenance.ignored] == [(TOKENIZER, state)] and not plain.provenance.ignored


def test_dropout_would_change_an_encoding(tmp_path: Path):
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[("a", "b")], dropout=0.9))
    assert len({len(backend.encode("ab" * 20).ids) for _ in range(20)}) > 1
    assert from_folder(write(tmp_path, backend)).encode("ab" * 20) == [2] * 20


# ---- what is read: tokenizer_config.json


@reads(TOKENIZER_CONFIG, "bos_token", "eos_token", "*_token")
@pytest.mark.parametrize("written", [str, lambda text: {"content": text, "__type": "AddedToken", "lstrip": False}])
def test_special_tokens_are_variables_of_the_template(tmp_path: Path, written: Callable[[str], Any]):
    template = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ image_token }}|{{ unk_token }}|{{ add_bos_token }}"
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "image_token": "<image>"}
    tokens = {name: written(text) for name, text in named.items()} | {"unk_token": None, "add_bos_token": True}
    tokenizer = from_folder(write(tmp_path, chat_template=template, **tokens))
    assert tokenizer.render_chat(HI) == "<s>|</s>|<pad>|<image>||"
    assert (tokenizer.bos_token, tokenizer.eos_tokens) == (0, (1,))
    assert tokenizer.encode("<pad><image>") == [0, SIZE, SIZE + 1]  # cut out, though tokenizer.json lacks them


@reads(TOKENIZER_CONFIG, "extra_special_tokens", "additional_special_tokens")
def test_more_special_tokens(tmp_path: Path):
    for key in ("extra_special_tokens", "additional_special_tokens"):
        tokenizer = from_folder(write(tmp_path, chat_template="{{ eoh }}", **{key: ["<new>", {"content": "<x>"}, "<s>"]}))
        assert tokenizer.encode("<new><x>") == [0, SIZE, SIZE + 1] and tokenizer.decode([SIZE]) == ""
        tokenizer = from_folder(write(tmp_path, chat_template="{{ eoh }}", **{key: {"eoh": "<new>"}}))
        assert tokenizer.encode("<new>") == [0, SIZE] and tokenizer.render_chat(HI) == "<new>"
    both = from_folder(write(tmp_path, extra_special_tokens=["<new>"], additional_special_tokens=["<x>"]))
    assert both.encode("<new>") == [0, SIZE] and len(both.encode("<x>")) == 4


@reads(TOKENIZER_CONFIG, "added_tokens_decoder")
def test_added_tokens(tmp_path: Path):
    flags = {"lstrip": True, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    given = {"3": {"content": "<|im_end|>", **flags}, "260": {"content": "<new>", **flags, "special": False}}
    tokenizer = from_folder(write(tmp_path, added_tokens_decoder=given, extra_special_tokens=["<new>"]))
    assert tokenizer.encode(" <|im_end|>") == [0, 3]  # lstrip by this file
    assert tokenizer.encode("<new>") == [0, 260] and tokenizer.decode([260]) == "<new>"  # said before the other key
    wrong = write(tmp_path, added_tokens_decoder={"7": {"content": "<s>", **flags}})
    assert from_folder(wrong).encode("<s>") == [0, 0]  # tokenizer.json knows its own
    with pytest.raises(UserError, match=r"'<new>' is to have id 300, and the next free one of tokenizer.json is 260; save"):
        from_folder(write(tmp_path, added_tokens_decoder={"300": {"content": "<new>", **flags}}))


@reads(TOKENIZER_CONFIG, "split_special_tokens")
def test_special_tokens_may_be_split(tmp_path: Path):
    assert from_folder(write(tmp_path)).encode("<s>") == [0, 0]
    assert from_folder(write(tmp_path, split_special_tokens=False)).encode("<s>") == [0, 0]
    assert len(from_folder(write(tmp_path, split_special_tokens=True)).encode("<s>")) == 4


@reads(TOKENIZER_CONFIG, "tokenizer_class")
def test_defaults_of_a_class(tmp_path: Path):
    template = "{{ bos_token }}|{{ eos_token }}"
    for name, expected, ends in (
        ("LlamaTokenizer", "<s>|</s>", (1,)),
        ("LlamaTokenizerFast", "<s>|</s>", (1,)),
        ("GemmaTokenizer", "<bos>|<eos>", ()),  # not in this vocabulary
        ("Qwen2Tokenizer", "|<|endoftext|>", ()),
        ("PreTrainedTokenizerFast", "|", ()),
        (None, "|", ()),
    ):
        tokenizer = from_folder(write(tmp_path, chat_template=template, tokenizer_class=name))
        assert (tokenizer.render_chat(HI), tokenizer.eos_tokens) == (expected, ends)
    null = write(tmp_path, chat_template=template, tokenizer_class="LlamaTokenizer", bos_token=None, eos_token="<|im_end|>")
    assert from_folder(null).render_chat(HI) == "|<|im_end|>"
    ends_by_class = from_folder(write(tmp_path, tokenizer_class="LlamaTokenizer")).provenance.end_tokens
    assert ends_by_class == ((1, ("tokenizer_config.json tokenizer_class eos_token",)),)


@reads(TOKENIZER_CONFIG, "chat_template")
def test_a_template_in_each_spelling(tmp_path: Path):
    named = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    for given in (named, {each["name"]: each["template"] for each in named}):
        tokenizer = from_folder(write(tmp_path, chat_template=given))
        assert tokenizer.render_chat(HI) == "D" and tokenizer.render_chat(HI, tools=[]) == "T"
        assert tokenizer.provenance.chat_template == (
            "tokenizer_config.json chat_template default",
            "tokenizer_config.json chat_template tool_use",
        )
        unused = Ignored(TOKENIZER_CONFIG, "chat_template rag", "only templates called default and tool_use are used")
        assert tokenizer.provenance.ignored == (unused,)
    assert from_folder(write(tmp_path, chat_template="D")).provenance.chat_template == ("tokenizer_config.json chat_template",)
    assert from_folder(write(tmp_path, chat_template=None)).chat_template is None
    ids = from_folder(write(tmp_path, chat_template="{{ bos_token }}" + CHATML, bos_token="<s>")).encode_chat(HI)
    assert ids.count(0) == 1 and ids[:2] == [0, 2]  # bos is not doubled
    with pytest.raises(UserError, match=r"no chat template; send a plain prompt"):
        from_folder(write(tmp_path)).encode_chat(HI)


# ---- what is read: the other files


@reads("", "chat_template.jinja", "additional_chat_templates/*.jinja", "chat_template.json", TOKENIZER, TOKENIZER_CONFIG)
def test_template_files_in_their_order(tmp_path: Path):
    folder = write(tmp_path)
    put(folder, "chat_template.json", {"chat_template": "old"})
    assert from_folder(folder).render_chat(HI) == "old"
    write(folder, chat_template="config")
    tokenizer = from_folder(folder)
    assert tokenizer.render_chat(HI) == "config"
    before = Ignored("chat_template.json", "chat_template", "tokenizer_config.json chat_template goes before it")
    assert tokenizer.provenance.ignored == (before,)
    put(folder, "chat_template.jinja", "file\r\n{{ 1 }}")
    put(folder, "additional_chat_templates/tool_use.jinja", "T")
    put(folder, "additional_chat_templates/rag.jinja", "R")
    tokenizer = from_folder(folder)
    assert tokenizer.render_chat(HI) == "file\n1" and tokenizer.render_chat(HI, tools=[]) == "T"
    assert tokenizer.provenance.chat_template == ("chat_template.jinja", "additional_chat_templates/tool_use.jinja")
    assert {entry[:2] for entry in tokenizer.provenance.ignored} == {
        ("additional_chat_templates/rag.jinja", "the file"),
        ("tokenizer_config.json", "chat_template"),
        ("chat_template.json", "chat_template"),
    }


@reads(SPECIAL_TOKENS_MAP, "*_token", "extra_special_tokens", "additional_special_tokens")
@reads("", SPECIAL_TOKENS_MAP, "added_tokens.json")
def test_older_files_count_where_there_is_no_added_tokens_decoder(tmp_path: Path):
    folder = write(tmp_path, eos_token="</s>", pad_token="</s>", chat_template="{{ eos_token }}{{ pad_token }}{{ cls_token }}")
    put(
        folder,
        "special_tokens_map.json",
        {"eos_token": {"content": "<|im_end|>"}, "cls_token": "<x>", "additional_special_tokens": ["<y>"]},
    )
    put(folder, "added_tokens.json", {"<x>": SIZE, "<plain>": SIZE + 1})
    tokenizer = from_folder(folder)
    assert tokenizer.render_chat(HI) == "<|im_end|></s><x>" and tokenizer.eos_tokens == (3,)
    assert tokenizer.encode("<x><plain><y>") == [0, SIZE, SIZE + 1, SIZE + 2]
    assert tokenizer.decode([SIZE, SIZE + 1, SIZE + 2]) == "<plain>"  # the others are special
    assert tokenizer.provenance.end_tokens == ((3, ("special_tokens_map.json eos_token",)),)
    assert tokenizer.provenance.tokenizer == (
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    )
    put(folder, "special_tokens_map.json", {"extra_special_tokens": {"eoh": "<z>"}})
    assert from_folder(folder).encode("<z>")[1:] == [SIZE + 2]

    write(tmp_path, eos_token="</s>", added_tokens_decoder={}, chat_template="{{ eos_token }}")
    tokenizer = from_folder(folder)
    assert tokenizer.render_chat(HI) == "</s>" and tokenizer.eos_tokens == (1,) and len(tokenizer.encode("<x>")) == 4
    why = "tokenizer_config.json has added_tokens_decoder"
    files = (Ignored("special_tokens_map.json", "the file", why), Ignored("added_tokens.json", "the file", why))
    assert tokenizer.provenance.ignored == files


# ---- where an answer ends


def model(folder: Path, config: dict[str, Any], generation: dict[str, Any] | None, **tokenizer: Any) -> SafetensorsCheckpoint:
    keys = checkpoints.hf_config(**{"vocab_size": 320, **config})
    checkpoints.write_folder(folder, keys, checkpoints.hf_tensors("llama", keys))
    if generation is not None:
        put(folder, "generation_config.json", generation)
    write(folder, **tokenizer)
    return SafetensorsCheckpoint(folder)


@reads(GENERATION_CONFIG, "eos_token_id")
@reads("", GENERATION_CONFIG)
@pytest.mark.parametrize(
    ("config", "generation", "eos_token", "expected"),
    [
        (2, 2, "<|im_end|>", {2: "CG", 3: "T"}),  # the case of cases.md, by other ids
        ([2, 3], 2, None, {2: "CG", 3: "C"}),  # generation_config.json adds and never narrows
        (2, [3, 4], "</s>", {2: "C", 3: "G", 4: "G", 1: "T"}),
        (2, None, None, {2: "C"}),
        (2, "missing", "<|im_end|>", {2: "C", 3: "T"}),
        (None, 5, None, {5: "G"}),
        (None, None, "<|im_end|>", {3: "T"}),
        (None, None, None, {}),
        ([], [], None, {}),
        (2, -1, "<new>", {2: "C", SIZE: "T"}),
        ([2, 320], 999, None, {2: "C"}),
    ],
)
def test_every_source_of_end_tokens_counts(
    tmp_path: Path,
    config: Any,
    generation: Any,
    eos_token: str | None,
    expected: dict[int, str],
):
    names = {
        "C": "config.json eos_token_id",
        "G": "generation_config.json eos_token_id",
        "T": "tokenizer_config.json eos_token",
    }
    found = model(
        tmp_path,
        {"eos_token_id": config},
        None if generation == "missing" else {"eos_token_id": generation},
        eos_token=eos_token,
    )
    tokenizer = found.tokenizer()
    assert dict(tokenizer.provenance.end_tokens) == {
        token: tuple(names[letter] for letter in of) for token, of in expected.items()
    }
    assert tokenizer.eos_tokens == tuple(expected)


def test_an_end_that_the_model_cannot_draw_is_told(tmp_path: Path):
    tokenizer = model(tmp_path, {"eos_token_id": [2, 320]}, {"eos_token_id": -1}).tokenizer()
    why = "the model has no such token, so it is never drawn"
    expected = (Ignored("config.json", "eos_token_id 320", why), Ignored("generation_config.json", "eos_token_id -1", why))
    assert tokenizer.provenance.ignored == expected


@pytest.mark.parametrize("value", ["2", True, [2, "3"], {"a": 1}, 2.5, [[2]], float("nan")])
def test_an_end_that_is_none_is_refused(tmp_path: Path, value: Any):
    with pytest.raises(
        UserError, match=r"generation_config.json: eos_token_id has .*; it must be a token id or a list of them"
    ):
        model(tmp_path, {}, {"eos_token_id": value})


def test_ends_of_a_config():
    assert ends_of({"eos_token_id": [1, 2.0]}, Path("x.json")) == [(1, "x.json eos_token_id"), (2, "x.json eos_token_id")]
    assert ends_of({}, Path("x.json")) == ends_of({"eos_token_id": None}, Path("x.json")) == []


def test_a_prompt_with_a_token_beyond_the_embedding(tmp_path: Path):
    """vocab_size 300 and an added token with id 300: the example of cases.md."""
    backend = pipeline()
    backend.add_tokens([f"<{i}>" for i in range(SIZE, 301)])
    config = checkpoints.hf_config(vocab_size=300)
    folder = checkpoints.write_folder(tmp_path, config, checkpoints.hf_tensors("llama", config))
    tokenizer = SafetensorsCheckpoint(write(folder, backend)).tokenizer()
    assert tokenizer.encode("<299>") == [0, 299]
    with pytest.raises(UserError, match=r"token 300 \('<300>'\), and the model's embedding has rows 0 to 299 only"):
        tokenizer.encode("<300>")


# ---- what is ignored and what is refused, row by row

ODD: tuple[Any, ...] = (True, 0, -1.5, "odd", ["odd"], {"odd": 1})


def rows(file: str, use: str) -> list[Key]:
    return [key for key in KEYS[file] if key.use == use]


@pytest.mark.parametrize("key", rows(TOKENIZER_CONFIG, "ignored"), ids=lambda key: key.name)
def test_ignored_keys_of_tokenizer_config_change_nothing(tmp_path: Path, key: Key):
    said = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ bos_token }}" + CHATML}
    expected = told(from_folder(write(tmp_path, **said)))
    for value in ODD:
        tokenizer = from_folder(write(tmp_path, **said, **{key.name: value}))
        if not (key.name.endswith("_token") and isinstance(value, str | dict)):
            assert told(tokenizer) == expected
            assert tokenizer.provenance.ignored == (Ignored(TOKENIZER_CONFIG, key.name, key.why),)


@pytest.mark.parametrize("key", rows(GENERATION_CONFIG, "ignored"), ids=lambda key: key.name)
def test_ignored_keys_of_generation_config_change_nothing(folder: Path, key: Key):
    for value in ODD:
        put(folder, "generation_config.json", {"eos_token_id": 3, key.name: value})
        found = SafetensorsCheckpoint(folder)
        assert found.tokenizer().eos_tokens == (2, 3)
        assert Ignored(GENERATION_CONFIG, key.name, key.why) in found.provenance.ignored


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model(path, {"eos_token_id": 2}, None)
    return path


def test_keys_that_nobody_knows_are_told(tmp_path: Path):
    folder = put(write(tmp_path, what=1), "special_tokens_map.json", {"who": 2})
    assert from_folder(folder).provenance.ignored == (
        Ignored(TOKENIZER_CONFIG, "what", "no reader here takes it"),
        Ignored(SPECIAL_TOKENS_MAP, "who", "no reader here takes it"),
    )


@pytest.mark.parametrize("key", [key for file in KEYS for key in rows(file, "refused")], ids=lambda key: key.name)
def test_refused_keys(tmp_path: Path, key: Key):
    assert key.name == "fast_tokenizer_files"
    from_folder(write(tmp_path, fast_tokenizer_files=["tokenizer.json"]))
    values: tuple[Any, ...] = (["tokenizer.json", "tokenizer.4.0.json"], 5, "x", {})
    for value in values:
        with pytest.raises(UserError, match=r"fast_tokenizer_files names other files than tokenizer\.json; drop the key"):
            from_folder(write(tmp_path, fast_tokenizer_files=value))


def test_files_beside_tokenizer_json_are_not_opened(tmp_path: Path):
    expected = told(from_folder(write(tmp_path)))
    for row in FILES:
        if row.use == "ignored":
            (tmp_path / row.name).write_bytes(b"\xff")
    assert told(from_folder(tmp_path)) == expected


def test_every_row_that_is_read_has_its_test():
    read = {(file, key.name) for file in KEYS for key in rows(file, "read")} | {
        ("", row.name) for row in FILES if row.use == "read"
    }
    assert set(READ) == read and all(test in globals().values() for test in READ.values())


# ---- docs/models.md


def table(heading: str) -> list[tuple[str, ...]]:
    """The rows of the first table below a heading."""
    section = DOCS.split(f"\n### {heading}\n")[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


@pytest.mark.parametrize(("heading", "keys"), [("Files", FILES), *((f"`{file}`", keys) for file, keys in KEYS.items())])
def test_the_docs_have_these_tables(heading: str, keys: tuple[Key, ...]):
    assert table(heading) == [(f"`{key.name}`", key.use, key.why) for key in keys]


def test_no_key_stands_twice():
    for keys in (*KEYS.values(), FILES):
        assert len({key.name for key in keys}) == len(keys)


# ---- bad input


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("tokenizer.json", None, r"tokenizer.json: no such file; save the tokenizer there with transformers"),
        ("tokenizer.json", "{", r"tokenizer.json: not a tokenizer that can be read"),
        ("tokenizer.json", "{}", r"tokenizer.json: not a tokenizer that can be read"),
        ("tokenizer_config.json", "{", r"tokenizer_config.json: not valid JSON .*; download it again"),
        ("tokenizer_config.json", "[]", r"tokenizer_config.json: it holds a list, not an object; download it again"),
        ("tokenizer_config.json", "\xff", r"tokenizer_config.json: .*byte 0 is not UTF-8.*; download it again"),
        ("special_tokens_map.json", "[]", r"special_tokens_map.json: it holds a list, not an object"),
        ("special_tokens_map.json", '{"eos_token": 5}', r"special_tokens_map.json: eos_token is a number and no token"),
        ("added_tokens.json", '{"<x>": "5"}', r"added_tokens.json: '<x>' has a string; it must be a token's id"),
        ("added_tokens.json", '{"<x>": 7000}', r"'<x>' is to have id 7000, and the next free one of tokenizer.json is 260"),
        ("chat_template.json", "5", r"chat_template.json: it holds a number, not an object"),
        ("chat_template.jinja", "\xff", r"chat_template.jinja: byte 0 is not UTF-8; download it again"),
        ("additional_chat_templates/a.jinja", "\xff", r"a.jinja: byte 0 is not UTF-8; download it again"),
        ("tokenizer_config.json", '{"bos_token": ["<s>"]}', r"bos_token is a list and no token; write its text"),
        ("tokenizer_config.json", '{"bos_token": {"text": "<s>"}}', r"bos_token is an object and no token"),
        ("tokenizer_config.json", '{"chat_template": 5}', r"chat_template is a number and no template"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}', r"chat_template is a list and no template"),
        ("tokenizer_config.json", '{"extra_special_tokens": "<x>"}', r"extra_special_tokens is a string; it must be a list"),
        (
            "tokenizer_config.json",
            '{"extra_special_tokens": ["<x>", 5]}',
            r"extra_special_tokens, entry 2 is a number and no token",
        ),
        ("tokenizer_config.json", '{"added_tokens_decoder": []}', r"added_tokens_decoder is a list, not an object"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', r"added_tokens_decoder has 'x' with an object"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"5": {"flag": 1}}}',
            r"added_tokens_decoder 5 is an object and no token",
        ),
    ],
)
def test_broken_folders(tmp_path: Path, name: str, content: str | None, pattern: str):
    path = write(tmp_path) / name
    path.parent.mkdir(exist_ok=True)
    path.unlink() if content is None else path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=pattern) as raised:
        from_folder(tmp_path)
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 400)
    | st.floats()
    | st.sampled_from(["", "<s>", "<new>", "{{ 1 }}", "default", "\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "name", "template", "7", "260", "special", "lstrip", "x_token"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
NAMES = sorted({key.name.replace("*", "x") for file in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP) for key in KEYS[file]})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@drawn(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3), st.none() | JSON, st.none() | JSON, st.none() | JSON)
def test_any_json_is_a_tokenizer_or_one_line(tmp_path: Path, config: dict[str, Any], special: Any, added: Any, old: Any):
    write(tmp_path, **config)
    for name, value in (("special_tokens_map.json", special), ("added_tokens.json", added), ("chat_template.json", old)):
        (tmp_path / name).unlink(missing_ok=True)
        if value is not None:
            put(tmp_path, name, value)
    try:
        tokenizer = from_folder(tmp_path, rows=300)
        assert all(0 <= token < 300 for token in tokenizer.eos_tokens)
        tokenizer.render_chat(HI)
        assert len(tokenizer.encode("ab")) == 3
    except UserError as error:
        assert len(str(error).splitlines()) == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@drawn(st.lists(st.sampled_from(list(json.loads(pipeline().to_str()))), min_size=1, max_size=2), JSON)
def test_any_tokenizer_json_is_read_or_one_line(tmp_path: Path, keys: list[str], value: Any):
    whole = json.loads(pipeline().to_str())
    put(tmp_path, "tokenizer.json", whole | dict.fromkeys(keys, value))
    try:
        assert isinstance(from_folder(tmp_path).encode("a b"), list)
    except UserError as error:
        assert len(str(error).splitlines()) == 1


# ---- transformers itself


@pytest.mark.peers
@pytest.mark.parametrize(
    "files",
    [
        {},
        {"eos_token": "<|im_end|>", "bos_token": "<s>", "pad_token": "<pad>"},
        {"extra_special_tokens": ["<new>"], "additional_special_tokens": ["<x>"]},
        {"extra_special_tokens": {"eoh": "<new>"}},
        {"image_token": "<new>"},
        {"add_bos_token": False, "add_eos_token": True, "eos_token": "</s>"},
        {"add_prefix_space": True},
        {"split_special_tokens": True},
        {"model_max_length": 4, "truncation_side": "left"},
        {"special_tokens_map.json": {"eos_token": "<|im_end|>"}, "added_tokens.json": {"<new>": 260}},
        {"added_tokens_decoder": {"260": {"content": "<new>", "special": True}}},
        {"added_tokens_decoder": {"3": {"content": "<|im_end|>", "lstrip": True, "special": True}}},
        {"chat_template": [{"name": "default", "template": "D{{ eoh }}"}, {"name": "tool_use", "template": "T"}]},
        {"chat_template.jinja": "F{{ bos_token }}{{ pad_token }}", "additional_chat_templates/tool_use.jinja": "T"},
    ],
)
def test_as_transformers_reads_the_folder(tmp_path: Path, files: dict[str, Any]):
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    config = {"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ eoh }}{{ image_token }}" + CHATML}
    write(tmp_path, **config | {key: value for key, value in files.items() if "." not in key})
    for name in files:
        if "." in name:
            put(tmp_path, name, files[name])
    theirs, ours = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path), from_folder(tmp_path)
    for text in (TEXT, "a<new>b <pad>", "x <|im_end|> y<s>", " <x>"):
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text), skip_special_tokens=True), text
    for tools in (None, [{"name": "f"}]):
        expected = theirs.apply_chat_template(HI, tools=tools, add_generation_prompt=True, tokenize=False)
        assert ours.render_chat(HI, tools=tools) == expected
    assert ours.eos_tokens == (() if theirs.eos_token is None else (theirs.eos_token_id,))
