"""What fits. Oracle: gigabytes added up by hand; facts.md's own figures are in `test_facts.py`."""

import pytest

from costmodel.capacity import Pool, fit, kv_pool
from models.errors import UserError

GIB = 2**30


def test_pages_round_a_sequence_up():
    pool = Pool(10_000.0, 10.0, page=16)
    assert (pool.sequence(16), pool.sequence(17), pool.sequences(17)) == (160, 320, 31)
    assert pool.over(32, 17) == 240 and pool.over(31, 17) == 0


def test_a_quantised_cache_holds_more():
    assert kv_pool("llama-3-8b", 30 * GIB, kv_dtype="int8").sequences(1024) == int(30 * GIB // (1024 * 32 * 16 * 132))


def test_what_fits_says_so():
    found = fit("llama-3-8b", "h100", pool=30 * GIB)
    assert found.fits and found.least == 1
    assert found.verdict == "llama-3-8b fits one h100-sxm of 80 GB: 16.1 GB of weights and 32.2 GB of KV pool"
    assert found.needed == found.weights + 30 * GIB


def test_more_chips_than_kv_heads_hold_heads_twice():
    """Llama 3 70B has 8 KV heads: on 16 chips each still holds an eighth of the pool."""
    pools = {n: fit("llama-3-70b", "h100", pool=80e9, tensor_parallel=n).pool for n in (1, 8, 16)}
    assert pools == {1: 80e9, 8: 10e9, 16: 10e9}


def test_a_latent_cache_lies_on_every_chip():
    assert fit("deepseek-v3", "h200", pool=10e9, tensor_parallel=16).pool == 10e9
    assert fit("deepseek-v3", "h200", dtype="float8-block128").least == 8  # 671 GB; 4 chips have 564
    assert "no tensor-parallel degree" in fit("deepseek-v3", "l4", pool=30e9).verdict


def test_only_degrees_that_divide_are_named():
    """9 heads and 3 KV heads: 2 chips would be enough, but only 3 divide."""
    tight = fit("smollm2-135m", "l4", pool=30e9)
    assert tight.least == 3 and "tensor-parallel degree 3" in tight.verdict


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit("llama-3-8b", "h100", pool=-1.0), "pool is -1; it must be at least 0"),
        (lambda: fit("llama-3-8b", "h100", tensor_parallel=3), "attention heads 32 does not divide by tensor_parallel 3"),
        (lambda: fit("llama-3-8b", "h100", parameters=0), "parameters is 0"),
        (lambda: fit("llama-3-8", "h100"), "unknown model 'llama-3-8'; did you mean llama-3-8b"),
        (lambda: fit("llama-3-8b", "h1000"), "unknown chip 'h1000'; did you mean h100-sxm"),
        (lambda: kv_pool("llama-3-8b", 0), "pool size is 0; it must be above 0"),
        (lambda: kv_pool("llama-3-8b", 1, page=0), "page size is 0"),
        (lambda: Pool(1.0, 1.0).sequences(0), "context is 0"),
        (lambda: Pool(1.0, 1.0).over(0, 1), "batch is 0"),
    ],
)
def test_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
