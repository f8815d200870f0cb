"""What a step may not be asked for. Each refusal names the value, the limit and the fix."""

import numpy as np
import pytest

from costmodel.analytical.step import step_cost
from models.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be above 0"),
        ({"batch": -8}, "batch is -8; it must be above 0"),
        ({"batch": np.array([1, 0])}, "batch is 0; it must be above 0"),
        ({"context": 0}, "context is 0; it must be above 0"),
        ({"context": 8193}, "context is 8193; it must be at most 8192, the longest that llama-3-8b takes"),
        ({"context": np.array([1, 9000])}, "context is 9000; it must be at most 8192"),
        ({"batch": None}, "give batch and context, or contexts row by row"),
        ({"contexts": [1, 2]}, "contexts has a row each, so leave batch and context out"),
        ({"batch": None, "context": None, "contexts": 5}, r"contexts is one number; give \[..., rows\], or batch and context"),
        ({"batch": None, "context": None, "contexts": []}, "context is empty; give at least one"),
        ({"batch": None, "context": None, "contexts": [5, 0]}, "context is 0; it must be above 0"),
        ({"kind": "train"}, "kind 'train' is unknown; give decode or prefill or mixed or verify"),
        ({"detail": "rough"}, "detail 'rough' is unknown; give full or nominal"),
        ({"chunk": 5}, "chunk belongs to prefill and mixed steps; this one is decode, so leave it out"),
        ({"drafts": 5, "kind": "prefill"}, "drafts belongs to verify steps; this one is prefill"),
        ({"kind": "verify"}, "a verify step needs drafts"),
        ({"kind": "mixed"}, "a mixed step needs chunk"),
        ({"kind": "verify", "drafts": 0}, "drafts is 0; it must be above 0"),
        ({"kind": "verify", "drafts": 4, "context": 3}, r"drafts \+ 1 is 5; it must be at most 3, the context, which counts"),
        (
            {"kind": "prefill", "chunk": 200},
            "chunk is 200; it must be at most 100, the context, which counts the tokens of the step",
        ),
        ({"kind": "prefill", "chunk": 0}, "chunk is 0; it must be above 0"),
        ({"kind": "mixed", "chunk": 9, "prompts": 0}, "prompts is 0"),
        ({"kind": "mixed", "chunk": 9, "prompt_context": 8}, "chunk is 9; it must be at most 8, the prompt_context"),
        ({"kind": "mixed", "chunk": 9, "prompt_context": 9000}, "prompt_context is 9000; it must be at most 8192"),
        ({"padded_batch": 4}, "batch is 8; it must be at most 4, the padded_batch"),
        ({"kind": "prefill", "padded_chunk": 64}, "chunk is 100; it must be at most 64, the padded_chunk"),
        ({"padded_chunk": 64}, "padded_chunk belongs to prefill and mixed steps"),
        ({"padded_batch": 8, "detail": "nominal"}, "padded_batch and padded_chunk belong to the full model"),
        ({"parameters": 8e9}, "parameters belongs to the nominal model; the full one counts those of llama-3-8b"),
        ({"parameters": -1, "detail": "nominal"}, "parameters is -1; it must be above 0"),
        ({"dtype": "int7"}, "unknown dtype 'int7'; did you mean int8"),
        ({"dtype": "float8", "chip": "a100"}, "chip a100-sxm-80gb: no dense peak for float8; it has bfloat16"),
        ({"dtype": "float32", "chip": "v5e"}, "chip tpu-v5e: no dense peak for float32; it has bfloat16, int8"),
        ({"compute": "int4", "dtype": "int4-g128", "chip": "h100"}, "chip h100-sxm: no dense peak for int4"),
        ({"tensor_parallel": 5}, "attention heads 32 does not divide by tensor_parallel 5"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0; it must be at least 1"),
        ({"chip": "h100-smx"}, "unknown chip 'h100-smx'; did you mean h100-sxm"),
        ({"config": "llama-3-7b"}, "unknown model 'llama-3-7b'; did you mean llama-3-[78]"),
        ({"config": {"architectures": ["MixtralForCausalLM"]}}, "config.json: key 'hidden_size' is missing"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        step_cost(**({"config": "llama-3-8b", "batch": 8, "context": 100} | arguments))


def test_the_longest_context_is_taken():
    assert step_cost("llama-3-8b", batch=1, context=8192).tokens == 1
    assert step_cost("llama-3-8b", batch=1, context=8192, kind="prefill").tokens == 8192
