"""What fits. Oracle: gigabytes added up by hand; facts.md's own figures are in `test_facts.py`."""

import pytest

from costmodel.capacity import Pool, fit, kv_pool, workspace_bytes
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


def test_block_metadata_and_headroom():
    """30 GiB of Llama 3 8B in pages of 16 tokens, 2 MiB each, with 4 B of page table: 15,359 pages and not 15,360.

    Of them 154, a hundredth, stay free: 15,205 are 237 sequences of 64 pages. Before both it is 240 (facts.md section 4).
    """
    bare = kv_pool("llama-3-8b", 30 * GIB, page=16)
    assert (bare.pages, bare.usable, bare.sequences(1024), bare.metadata) == (15_360, 15_360, 240, 0)
    full = kv_pool("llama-3-8b", 30 * GIB, page=16, entry=4.0, headroom=0.01)
    assert (full.pages, full.usable, full.sequences(1024)) == (15_359, 15_205, 237)
    assert full.metadata == 15_359 * 4


def test_sequences_follow_from_pages():
    """Whole pages: 10 pages of 4 tokens hold 3 sequences of 9 tokens, of 3 pages each, although 90 tokens' bytes would fit 4."""
    pool = Pool(400.0, 10.0, page=4)
    assert (pool.pages, pool.pages_of(9), pool.sequences(9)) == (10, 3, 3)
    assert pool.over(4, 9) == 4 * 3 * 40 - 400


def test_headroom_counts_as_taken():
    """10 pages of 100 B, half of them kept free: 6 sequences of a page are 100 B over the other half."""
    assert Pool(1000.0, 100.0, headroom=0.5).over(6, 1) == 100.0


def test_workspace_by_hand():
    """Llama 3 8B, 64 tokens, 8 of which draw: (2 x 4096 + 2 x 14336) x 2 B a token, and 8 x 128,256 f32 logits; halves on two chips."""
    assert workspace_bytes("llama-3-8b", rows=8, tokens=64) == 64 * (2 * 4096 + 2 * 14336) * 2 + 8 * 128_256 * 4
    assert workspace_bytes("llama-3-8b", rows=8, tokens=64, tensor_parallel=2) == 64 * (2 * 4096 + 14336) * 2 + 8 * 64_128 * 4


def test_what_is_left_for_kv():
    """80 GB less a tenth, less 16.06 GB of weights; two chips have twice the memory less the same weights, all heads once."""
    one = fit("llama-3-8b", "h100", reserve=0.1)
    assert one.room == pytest.approx(72e9 - one.weights) and one.replication == 1
    two = fit("llama-3-8b", "h100", reserve=0.1, tensor_parallel=2)
    assert two.room == pytest.approx(2 * (72e9 - two.weights))
    beside = fit("llama-3-8b", "h100", reserve=0.1, rows=64, tokens=512)
    assert one.room - beside.room == pytest.approx(workspace_bytes("llama-3-8b", rows=64, tokens=512))
    assert beside.verdict.endswith("of 80 GB less 10%: 16.1 GB of weights and 0.1 GB of workspace")


def test_workspace_decides_too():
    """80 GB less 16.06 of weights are 63.9: a pool of 63.5 fits alone, and not beside half a gigabyte of workspace."""
    assert fit("llama-3-8b", "h100", pool=63.5e9).fits
    tight = fit("llama-3-8b", "h100", pool=63.5e9, rows=512, tokens=4096)
    assert workspace_bytes("llama-3-8b", rows=512, tokens=4096) > 0.5e9 and not tight.fits and tight.least == 2


def test_heads_that_are_held_twice_leave_less_room():
    """16 chips for 8 KV heads: each pool is an eighth of the whole, so 16 x what is left holds it twice."""
    found = fit("llama-3-70b", "h100", tensor_parallel=16)
    assert found.replication == 2 and found.room == pytest.approx((80e9 - found.weights) * 8)
    assert fit("llama-3-70b", "h100").room == 0


def test_the_70b_case():
    """facts.md section 3: 140 GB do not fit 80; with a pool of 30 GiB two chips do (70 + 16.1 of 80 GB each: no), so four."""
    alone = fit("llama-3-70b", "h100", parameters=70e9, pool=30 * GIB)
    assert not alone.fits and alone.weights == 140e9 and alone.least == 4
    assert alone.verdict.endswith("the smallest that does is tensor-parallel degree 4")
    assert fit("llama-3-70b", "h100", parameters=70e9, pool=30 * GIB, tensor_parallel=4).fits
    assert not fit("llama-3-70b", "h100", parameters=70e9, pool=30 * GIB, tensor_parallel=2).fits


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pool(1.0, 1.0, headroom=1.0), "headroom is 1; it must be a share from 0 to below 1"),
        (lambda: Pool(1.0, 1.0, headroom=-0.1), "headroom is -0.1"),
        (lambda: Pool(1.0, 1.0, entry=-1.0), "metadata of a page is -1 B"),
        (lambda: fit("llama-3-8b", "h100", reserve=1.0), "reserve is 1; it must be a share"),
        (lambda: workspace_bytes("llama-3-8b", rows=0, tokens=1), "rows is 0"),
        (lambda: workspace_bytes("llama-3-8b", rows=1, tokens=0), "tokens of a step is 0"),
    ],
)
def test_shares_and_sizes_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
