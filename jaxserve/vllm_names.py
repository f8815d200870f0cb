"""vLLM's names for what is asked of an engine, of a request and of a call, for whoever comes from there.

A name that means the same here works; any other is answered with what stands in its place. `docs/from-vllm.md` prints these tables.
The names are those of vLLM's `LLM`, `EngineArgs` and `SamplingParams`, as its public source has them. Plain Python.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, TypeVar

from jaxserve.values import boolean, shown
from models.errors import UserError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Same:
    """A name that works.

    Attributes:
      ours: what it is called here.
      of: from their value to ours, given their name too.
      beside: further arguments, where the call doesn't give them itself.
    """

    ours: str
    of: Callable[[str, Any], Any] = lambda name, value: value
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Otherwise:
    """A name that is refused.

    Attributes:
      says: what there is in its place, or that there is nothing.
      idle: values that ask for nothing, as None always does: they are passed over.
    """

    says: str
    idle: tuple[Any, ...] = ()


Names: TypeAlias = Mapping[str, Same | Otherwise]

_ONE_DEVICE = "a model runs on one device; leave it out"
_NO_LORA = "there are no LoRA adapters; merge them into the weights"
_NO_VISION = "prompts are text alone; leave it out"
_NO_GRAMMAR = "answers can't be held to a grammar; logit_bias and stop are what there is"
_LOCAL = "a revision can't be named; give the folder of the one that you want as model"


def _policy(name: str, value: Any) -> str:
    return "chunked" if boolean(name, value) else "continuous"


def _kv_dtype(name: str, value: Any) -> Any:
    return None if value == "auto" else value


ENGINE: Names = {
    "max_model_len": Same("context"),
    "max_num_seqs": Same("rows"),
    "block_size": Same("page_size"),
    "num_gpu_blocks_override": Same("pages"),
    "kv_cache_dtype": Same("kv_dtype", _kv_dtype),
    "enable_prefix_caching": Same("prefix_cache"),
    "enable_chunked_prefill": Same("policy", _policy),
    "max_num_batched_tokens": Same("budget", beside={"policy": "chunked"}),
    "tokenizer": Otherwise("the tokenizer is the one in the model's own folder or file; leave it out"),
    "tokenizer_mode": Otherwise("tokenizer.json is always read; leave it out", ("auto", "fast")),
    "tokenizer_revision": Otherwise(_LOCAL),
    "skip_tokenizer_init": Otherwise("the tokenizer is always read; leave it out", (False,)),
    "revision": Otherwise(_LOCAL),
    "code_revision": Otherwise(_LOCAL),
    "trust_remote_code": Otherwise("no code of a model's is ever run; leave it out", (False,)),
    "download_dir": Otherwise("the Hub's own cache is used; set HF_HOME"),
    "hf_token": Otherwise("log in with `hf auth login`, or set HF_TOKEN"),
    "hf_overrides": Otherwise("config.json is read as it is; change it there", ({},)),
    "load_format": Otherwise(
        "the format follows from the files; for random weights give model='random:PRESET'", ("auto", "safetensors", "gguf")
    ),
    "config_format": Otherwise("the format follows from the files; leave it out", ("auto", "hf")),
    "quantization": Otherwise("weights run as dtype says, float32 or bfloat16; a .gguf file may hold fewer bits"),
    "chat_template": Otherwise("the template is the model's own; put another into its tokenizer_config.json"),
    "generation_config": Otherwise("SamplingParams says it all; end tokens come from the model's files", ("auto", "vllm")),
    "override_generation_config": Otherwise("SamplingParams says it all; leave it out", ({},)),
    "served_model_name": Otherwise("the model has the name that it is loaded by; leave it out"),
    "task": Otherwise("models generate text, and nothing else", ("auto", "generate")),
    "runner": Otherwise("models generate text, and nothing else", ("auto", "generate")),
    "gpu_memory_utilization": Otherwise(
        "memory for KV is pages=N, of page_size tokens each; without it a share of what is free"
    ),
    "kv_cache_memory_bytes": Otherwise("memory for KV is pages=N, of page_size tokens each"),
    "swap_space": Otherwise(
        "nothing is swapped to the host: whoever is preempted runs its prompt again; leave it out", (0, 0.0, 4, 4.0)
    ),
    "cpu_offload_gb": Otherwise("weights stay on the device; leave it out", (0, 0.0)),
    "enforce_eager": Otherwise("every step is a program that was compiled ahead of time; leave it out", (False,)),
    "compilation_config": Otherwise("every step is a program that was compiled ahead of time; leave it out"),
    "max_seq_len_to_capture": Otherwise("every step is a program that was compiled ahead of time; leave it out"),
    "speculative_config": Otherwise("prompt lookup is speculate='ngram' with drafts=N; there is no draft model"),
    "num_scheduler_steps": Otherwise("give multi_step=N", (1,)),
    "async_scheduling": Otherwise(
        "the next step is always planned while one runs, where that is possible; leave it out", (True,)
    ),
    "scheduling_policy": Otherwise(
        "priorities count under every policy: engine.submit(..., priority=N); policy is another thing here", ("fcfs",)
    ),
    "max_logprobs": Otherwise("a request may ask for up to 20 logprobs; leave it out"),
    "disable_log_stats": Otherwise("log=FILE writes every step down", (True,)),
    "tensor_parallel_size": Otherwise(_ONE_DEVICE, (1,)),
    "pipeline_parallel_size": Otherwise(_ONE_DEVICE, (1,)),
    "data_parallel_size": Otherwise(_ONE_DEVICE, (1,)),
    "enable_expert_parallel": Otherwise(_ONE_DEVICE, (False,)),
    "distributed_executor_backend": Otherwise(_ONE_DEVICE, ("uni", "mp")),
    "disable_custom_all_reduce": Otherwise(_ONE_DEVICE, (False, True)),
    "device": Otherwise("JAX chooses the device; set JAX_PLATFORMS", ("auto",)),
    "enable_lora": Otherwise(_NO_LORA, (False,)),
    "max_loras": Otherwise(_NO_LORA),
    "max_lora_rank": Otherwise(_NO_LORA),
    "limit_mm_per_prompt": Otherwise(_NO_VISION, ({},)),
    "mm_processor_kwargs": Otherwise(_NO_VISION, ({},)),
    "guided_decoding_backend": Otherwise(_NO_GRAMMAR, ("auto",)),
    "structured_outputs_config": Otherwise(_NO_GRAMMAR),
    "reasoning_parser": Otherwise("the text is given as it was drawn; leave it out", ("",)),
}
SAMPLING: Names = {
    "stop_token_ids": Same("stop_ids"),
    "include_stop_str_in_output": Same("include_stop"),
    "best_of": Otherwise("answers are not ranked; give n, and compare them by cumulative_logprob", (1,)),
    "use_beam_search": Otherwise("there is no beam search; leave it out", (False,)),
    "length_penalty": Otherwise("there is no beam search; leave it out", (1.0, 1)),
    "early_stopping": Otherwise("there is no beam search; leave it out", (False,)),
    "allowed_token_ids": Otherwise("give logit_bias={id: 100}: where a token has 100, only those that have 100 are drawn"),
    "bad_words": Otherwise("give logit_bias={id: -100} to forbid tokens, or stop to end at a text", ([],)),
    "logits_processors": Otherwise("what changes logits is compiled: logit_bias, penalties, min_tokens", ([],)),
    "structured_outputs": Otherwise(_NO_GRAMMAR),
    "guided_decoding": Otherwise(_NO_GRAMMAR),
    "detokenize": Otherwise("the text is always made; token_ids stand beside it", (True,)),
    "skip_special_tokens": Otherwise("special tokens are never shown in the text; token_ids have them", (True,)),
    "spaces_between_special_tokens": Otherwise(
        "special tokens are never shown in the text; token_ids have them", (True, False)
    ),
    "truncate_prompt_tokens": Otherwise("prompts are never cut; cut the token ids yourself"),
    "output_kind": Otherwise("llm.generate gives whole answers and llm.stream their pieces; leave it out"),
    "flat_logprobs": Otherwise("logprobs have one form; leave it out", (False,)),
    "logprob_token_ids": Otherwise("give logprobs=N for the N likeliest"),
    "thinking_token_budget": Otherwise("give max_tokens", (-1,)),
    "skip_reading_prefix_cache": Otherwise("give LLM(prefix_cache=False)", (False,)),
    "extra_args": Otherwise("there is nothing that would read them; leave it out", ({},)),
}
GENERATE: Names = {
    "sampling_params": Same("params"),
    "use_tqdm": Same("progress"),
    "prompt_token_ids": Otherwise("give the token ids as prompts"),
    "priority": Otherwise("give it to engine.submit(prompt, params, priority=N), where lower ones go first"),
    "lora_request": Otherwise(_NO_LORA),
    "prompt_adapter_request": Otherwise(_NO_LORA),
    "guided_options_request": Otherwise(_NO_GRAMMAR),
    "tokenization_kwargs": Otherwise("the tokenizer has no options; leave it out", ({},)),
}
CHAT: Names = {
    **{name: there for name, there in GENERATE.items() if name not in ("prompt_token_ids", "guided_options_request")},
    "chat_template": Otherwise("the template is the model's own; put another into its tokenizer_config.json"),
    "chat_template_content_format": Otherwise(
        "text parts of a message are joined by line ends; leave it out", ("auto", "string")
    ),
    "add_generation_prompt": Otherwise("the model always answers as the next turn; leave it out", (True,)),
    "continue_final_message": Otherwise(
        "write the text of the last turn yourself, and call llm.generate with raw=True", (False,)
    ),
    "tools": Otherwise("templates get no tools; leave it out", ([],)),
    "chat_template_kwargs": Otherwise("templates get the messages alone; leave it out", ({},)),
    "mm_processor_kwargs": Otherwise(_NO_VISION, ({},)),
}


def translated(call: str, given: Mapping[str, Any], known: Collection[str], names: Names) -> dict[str, Any]:
    """Arguments under our names.

    Args:
      call: who was given them, for messages.
      known: our names.

    Raises:
      UserError: a name is unknown, means nothing here, or says twice what another one says.
    """
    found = {name: value for name, value in given.items() if name in known}
    beside = dict[str, Any]()
    for name, value in given.items():
        if name in known:
            continue
        match names.get(name):
            case Same(ours, of, more):
                if ours in found:
                    raise UserError(f"{call} was given {name} and {ours}, which are the same; leave {name} out")
                found[ours] = of(name, value)
                beside |= more
            case Otherwise(says, idle):
                if value is not None and not any(type(value) is type(one) and value == one for one in idle):
                    raise UserError(f"{call} has no {name} (it was given {shown(value)}): {says}")
            case _:
                raise UserError(f"{call} has no argument {shown(name)}; {_nearest(call, name, known, names)}")
    return beside | found


def takes_names_of(names: Names) -> Callable[[type[T]], type[T]]:
    """A dataclass that is made with these names too."""

    def wrapped(kind: type[T]) -> type[T]:
        made: Callable[..., None] = kind.__init__
        fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]

        @functools.wraps(made)
        def init(self: T, *given: Any, **named: Any) -> None:
            if not all(name in fields for name in named):
                named = translated(kind.__name__, named, fields, names)
            made(self, *given, **named)

        kind.__init__ = init  # type: ignore[method-assign, assignment]
        return kind

    return wrapped


def _nearest(call: str, name: str, known: Collection[str], names: Names) -> str:
    close = difflib.get_close_matches(
        name, [*known, *(theirs for theirs, there in names.items() if isinstance(there, Same))], n=1
    )
    return f"did you mean {close[0]}?" if close else f"help({call}) names all that it takes"
