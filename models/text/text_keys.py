"""What becomes of each file and key of a Hugging Face folder that is about text: docs/models.md shows these tables.

The rule is what transformers takes from them (`AutoTokenizer`, `apply_chat_template`, `GenerationConfig`). What changes which tokens a
prompt has, or where an answer ends, is read; what steers training, padding or sampling is not: a request says how it is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from models.files.provenance import Ignored, Key, ignored_keys

TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
ADDED_TOKENS, TEMPLATE, TEMPLATES, OLD_TEMPLATE = (
    "added_tokens.json", "chat_template.jinja", "additional_chat_templates", "chat_template.json"
)  # fmt: skip
GENERATION_CONFIG = "generation_config.json"


_OTHERS = "no reader here takes it"
_SIDE = "nothing is padded and nothing is cut"
_BEGIN = "the post_processor of tokenizer.json decides, as in transformers 5"
_RULES = "the rules stand in tokenizer.json"
_SAMPLING = "a request says how it is sampled"
_LENGTH = "a request says how long its answers may be"
_SEARCH = "answers are drawn token by token, without a search"
_ITSELF = "of transformers itself"

KEYS: Mapping[str, tuple[Key, ...]] = {
    TOKENIZER: (
        Key("model", "read", "the vocabulary and its merges or scores"),
        Key("added_tokens", "read", "tokens that are cut out of a text before all else"),
        Key("normalizer", "read", "what is done to a text first"),
        Key("pre_tokenizer", "read", "how a text is cut into words"),
        Key("post_processor", "read", "whether a plain text begins with bos_token and ends with eos_token"),
        Key("decoder", "read", "how tokens become a text again"),
        *ignored_keys("a training run's state; prompts are never cut", "truncation"),
        *ignored_keys("a training run's state; prompts are never padded", "padding"),
        *ignored_keys("a training run's state; a text has one encoding", "model.dropout"),
        *ignored_keys("the tokenizers library checks it", "version"),
    ),
    TOKENIZER_CONFIG: (
        Key("chat_template", "read", "one template, or several by name; without chat_template.jinja"),
        Key("bos_token", "read", "a variable of the template"),
        Key("eos_token", "read", "a variable of the template, and a token that ends an answer"),
        Key("*_token", "read", "any other key that ends so and is a token: a variable of the template, and a special token"),
        Key("extra_special_tokens", "read", "special tokens; by name they are variables of the template too"),
        Key("additional_special_tokens", "read", "special tokens, where there are no extra_special_tokens"),
        Key("added_tokens_decoder", "read", "tokens that tokenizer.json lacks, and how each is cut out"),
        Key("split_special_tokens", "read", "true: special tokens in a text are not cut out"),
        Key(
            "tokenizer_class",
            "read",
            "bos_token and eos_token by default: of LlamaTokenizer, GemmaTokenizer and Qwen2Tokenizer",
        ),
        Key("fast_tokenizer_files", "refused", "only tokenizer.json is read, and these files would be another one"),
        *ignored_keys(_BEGIN, "add_bos_token", "add_eos_token"),
        *ignored_keys(
            _RULES, "add_prefix_space", "legacy", "do_lower_case", "spaces_between_special_tokens", "sp_model_kwargs"
        ),
        *ignored_keys("a text is what its tokens say, streamed or not", "clean_up_tokenization_spaces", "errors"),
        *ignored_keys("config.json has the context; prompts are never cut", "model_max_length", "max_length"),
        *ignored_keys(_SIDE, "padding_side", "truncation_side", "truncation_strategy", "stride", "pad_to_multiple_of"),
        *ignored_keys(_SIDE, "pad_token_type_id", "model_input_names", "return_token_type_ids"),
        *ignored_keys("templates say it themselves", "use_default_system_prompt"),
        *ignored_keys("a model's own code is never run", "auto_map"),
        *ignored_keys(_ITSELF, "name_or_path", "tokenizer_file", "processor_class", "backend", "is_local", "local_files_only"),
        *ignored_keys(
            _ITSELF, "response_schema", "response_template", "chat_control_tokens", "init_inputs", "transformers_version"
        ),
    ),
    SPECIAL_TOKENS_MAP: (
        Key("*_token", "read", "as in tokenizer_config.json, and before it, where that has no added_tokens_decoder"),
        Key("extra_special_tokens", "read", "the same"),
        Key("additional_special_tokens", "read", "the same"),
    ),
    GENERATION_CONFIG: (
        Key("eos_token_id", "read", "one or several tokens that end an answer, beside those of the other files"),
        *ignored_keys(_SAMPLING, "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff"),
        *ignored_keys(_SAMPLING, "eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size"),
        *ignored_keys(
            _SAMPLING, "bad_words_ids", "sequence_bias", "suppress_tokens", "begin_suppress_tokens", "guidance_scale"
        ),
        *ignored_keys(_SAMPLING, "renormalize_logits", "remove_invalid_values", "watermarking_config", "num_return_sequences"),
        *ignored_keys(
            _SAMPLING, "stop_strings", "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"
        ),
        *ignored_keys(_LENGTH, "max_length", "max_new_tokens", "min_length", "min_new_tokens", "max_time"),
        *ignored_keys(_SEARCH, "num_beams", "num_beam_groups", "early_stopping", "length_penalty", "diversity_penalty"),
        *ignored_keys(_SEARCH, "penalty_alpha", "constraints", "force_words_ids", "low_memory", "dola_layers"),
        *ignored_keys("the template and the post_processor of tokenizer.json begin a text", "bos_token_id"),
        *ignored_keys("only decoders are run", "decoder_start_token_id", "encoder_no_repeat_ngram_size"),
        *ignored_keys("nothing is padded", "pad_token_id"),
        *ignored_keys("there is always a cache", "use_cache", "cache_implementation", "cache_config", "max_cache_len"),
        *ignored_keys("--speculate decides", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule"),
        *ignored_keys(
            "--speculate decides", "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size"
        ),
        *ignored_keys("--speculate decides", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "use_mtp"),
        *ignored_keys("--speculate decides", "assistant_ensemble_weight", "speculation_type"),
        *ignored_keys(_ITSELF, "output_attentions", "output_hidden_states", "output_scores", "output_logits"),
        *ignored_keys(_ITSELF, "return_dict_in_generate", "_from_model_config", "transformers_version", "compile_config"),
        *ignored_keys(_ITSELF, "disable_compile", "generation_kwargs", "token_healing", "prefill_chunk_size"),
        *ignored_keys(_ITSELF, "continuous_batching_config"),
    ),
}

FILES: tuple[Key, ...] = (
    Key(TOKENIZER, "read", "needed for text: vocabulary and rules"),
    Key(TOKENIZER_CONFIG, "read", "special tokens and the chat template"),
    Key(SPECIAL_TOKENS_MAP, "read", "special tokens, where tokenizer_config.json has no added_tokens_decoder"),
    Key(ADDED_TOKENS, "read", "tokens that tokenizer.json lacks, where tokenizer_config.json has no added_tokens_decoder"),
    Key(TEMPLATE, "read", "the chat template, before any other"),
    Key(f"{TEMPLATES}/*.jinja", "read", "templates by name; tool_use is taken where a request has tools, others are ignored"),
    Key(OLD_TEMPLATE, "read", "the chat template, where there is no other"),
    Key(GENERATION_CONFIG, "read", "tokens that end an answer"),
    *ignored_keys(
        "tokenizer.json holds the same",
        *("tokenizer.model", "vocab.json", "merges.txt", "tekken.json", "tiktoken.model", "spiece.model"),
    ),
)

TEXT_FILES = tuple(key.name for key in FILES if key.use == "read")


def is_token(name: str) -> bool:
    """Whether a key of tokenizer_config.json names a special token."""
    return name.endswith("_token") and all(key.name != name for key in KEYS[TOKENIZER_CONFIG] if key.use == "ignored")


def ignored(file: str, keys: Iterable[str]) -> tuple[Ignored, ...]:
    """Those of a file's keys that change nothing, in their order, and why."""
    table = {key.name: key for key in KEYS[file]}
    found = []
    for name in keys:
        row = table.get(name) or (table.get("*_token") if name.endswith("_token") else None) or Key(name, "ignored", _OTHERS)
        if row.use == "ignored":
            found.append(Ignored(file, name, row.why))
    return tuple(found)
