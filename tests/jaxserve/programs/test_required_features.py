"""Which features some requests need. Oracle: `Features.missing` finds nothing missing, and each figure by hand."""

from __future__ import annotations

import pytest

from jaxserve.programs.features import PLAIN, Features, required_features, union
from jaxserve.sampling_params import SamplingParams

EOS = (1, 106)


@pytest.mark.parametrize(
    ("params", "features"),
    [
        ([], PLAIN),
        ([SamplingParams(temperature=1.0, top_k=3, stop="x", n=2)], PLAIN),
        ([SamplingParams(repetition_penalty=1.1)], Features(history=100)),
        ([SamplingParams(logit_bias={7: 1.0, 8: 2.0, 9: -100.0})], Features(biases=4)),  # 3, and one to spare
        ([SamplingParams(min_tokens=2)], Features(biases=2)),  # both end tokens are held back
        ([SamplingParams(min_tokens=2, stop_ids=[5, 6, 7])], Features(biases=8)),
        ([SamplingParams(min_tokens=2, ignore_eos=True)], PLAIN),
        ([SamplingParams(logprobs=0), SamplingParams(logprobs=3)], Features(logprobs=3)),
        ([SamplingParams(logprobs=0)], Features(logprobs=0)),
        ([SamplingParams(prompt_logprobs=2), SamplingParams(presence_penalty=1)], Features(history=100, prompt_logprobs=2)),
    ],
)
def test_the_least_that_serves(params: list[SamplingParams], features: Features):
    assert required_features(params, EOS, 100) == features
    for each in params:
        assert features.missing(each, each.stop_set(EOS)) is None


def test_union():
    one, other = Features(history=5, logprobs=0), Features(biases=2, logprobs=4)
    assert union(one, other) == union(other, one) == Features(5, 2, 4, None)
    assert union(PLAIN, PLAIN) == PLAIN
