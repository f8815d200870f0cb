"""Stored bytes, scales and all. Oracles: GGUF's own table of block sizes, and multiplication by hand."""

import gguf
import pytest

from costmodel.arch.formats import FORMATS, Format, find_format
from models.errors import UserError


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q6_k"])
def test_block_formats_as_gguf_has_them(name):
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    assert FORMATS[name].bytes(7, 4 * numbers) == 7 * 4 * size
    assert FORMATS[name].row_bytes(numbers) == size


@pytest.mark.parametrize(
    ("name", "size"),  # of a matrix [2048 outputs, 7168 inputs]
    [
        ("float32", 2048 * 7168 * 4),
        ("bfloat16", 2048 * 7168 * 2),
        ("float16", 2048 * 7168 * 2),
        ("float8", 2048 * 7168 + 4),
        ("float8-channel", 2048 * 7168 + 2048 * 4),
        ("float8-block128", 2048 * 7168 + 16 * 56 * 4),
        ("int8", 2048 * 7168 + 2048 * 4),
        ("int4-g32", 2048 * 7168 // 2 + 2048 * 224 * 2),
        ("int4-g128", 2048 * 7168 // 2 + 2048 * 56 * 2),
        ("q4_1", 2048 * 224 * 20),
    ],
)
def test_a_matrix(name, size):
    assert FORMATS[name].bytes(2048, 7168) == size


def test_a_block_that_is_cut_has_its_scale_too():
    assert FORMATS["int4-g128"].bytes(1, 130) == 65 + 2 * 2
    assert FORMATS["float8-block128"].bytes(129, 127) == 129 * 127 + 2 * 4


def test_spellings_and_unknown_names():
    assert find_format("BF16") is FORMATS["bfloat16"] and find_format("fp8") is FORMATS["float8"]
    own = Format("mine", 3, "bfloat16", "made up")
    assert find_format(own) is own
    with pytest.raises(UserError, match=r"unknown dtype 'int4-g64'; did you mean int4-g.*known dtypes are float32"):
        find_format("int4-g64")
