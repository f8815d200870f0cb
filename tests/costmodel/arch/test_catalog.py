"""Models by name. Oracle: the published number of parameters, all and active, and transformers' own modules of the same configs."""

from typing import Any

import pytest

from costmodel.arch.architecture import CONFIG, FLAX, Architecture
from costmodel.arch.catalog import ARCHITECTURES, CONFIGS, as_architecture, find_architecture
from models.config.presets import PRESETS
from models.errors import UserError


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("smollm2-135m", 134_515_008),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("gemma-3-1b", 999_885_952),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 671_026_419_200),
    ],
)
def test_the_counts_of_the_published_checkpoints(name, parameters):
    assert find_architecture(name).parameter_count == parameters


@pytest.mark.parametrize(("name", "billions"), [("palm-8b", 8.63), ("palm-62b", 62.50), ("palm-540b", 540.35)])
def test_palm(name, billions):
    """Chowdhery et al. 2022, table 1; norms are beyond its digits."""
    palm = find_architecture(name)
    assert round((palm.parameter_count - palm.parameters["norm"]) / 1e9, 2) == billions
    assert palm.parallel and palm.tied_head and palm.kv_heads == 1 and palm.head_dim == 256 and palm.ffn == 4 * palm.hidden


def test_palm_540b_by_hand():
    palm = find_architecture("palm-540b")
    layer = 18432 * (48 + 2) * 256 + 48 * 256 * 18432 + 3 * 18432 * 73728
    assert palm.multiplied == 118 * layer + 256_000 * 18432
    assert (palm.layers, palm.hidden, palm.heads, palm.vocab) == (118, 18432, 48, 256_000)


def test_where_the_counts_come_from():
    assert {name: find_architecture(name).source for name in ARCHITECTURES} == {
        name: FLAX if name in PRESETS else CONFIG for name in ARCHITECTURES
    }


@pytest.mark.parametrize(
    ("name", "near"), [("llama-3-8", "llama-3-8b"), ("mixtral", "mixtral-8x7b"), ("deepseek", "deepseek-v3")]
)
def test_unknown_model_suggests_the_nearest(name, near):
    with pytest.raises(UserError, match=rf"unknown model '{name}'; did you mean .*{near}.*known models are tiny, "):
        find_architecture(name)


def test_a_model_in_any_form():
    llama = find_architecture("llama-3-8b")
    assert as_architecture("Llama_3 8B") is llama and as_architecture(llama) is llama
    assert as_architecture(PRESETS["llama-3-8b"]).weights == llama.weights
    assert isinstance(as_architecture(CONFIGS["mixtral-8x7b"]), Architecture)


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_against_transformers(name):
    """The peer's module on the meta device, where nothing is allocated. Its router correction is a buffer, not a parameter."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install jaxserve[transformers]")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install jaxserve[transformers]")
    keys: dict[str, Any] = dict(CONFIGS[name])
    (kind,) = keys.pop("architectures")
    if kind.startswith("Deepseek"):
        keys.setdefault("q_lora_rank", None)  # which the peer's own default is not
    config = getattr(transformers, kind.replace("ForCausalLM", "Config"))(**keys)
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    count = sum(p.numel() for p in model.parameters()) + sum(b.numel() for n, b in model.named_buffers() if "correction" in n)
    assert find_architecture(name).parameter_count == count
