"""Meshes and layouts: degrees worked out by hand from Pope et al. 2022, section 3, and refusals of what does not divide."""

import dataclasses

import pytest

from costmodel.arch.catalog import find_architecture, palm
from costmodel.parallel.layouts import ATTENTION, FEEDFORWARD, Layout, Mesh
from models.errors import UserError

PALM = find_architecture("palm-540b")  # E 18432, F 73728, 48 heads, 1 KV head
LLAMA = find_architecture("llama-3-8b")  # E 4096, F 14336, 32 heads, 8 KV heads


def test_mesh():
    mesh = Mesh(2, 3, 4)
    assert (mesh.chips, mesh.size("x"), mesh.size("yz"), mesh.size("")) == (24, 2, 12, 1)
    assert str(mesh) == "2x3x4"


@pytest.mark.parametrize(("text", "mesh"), [("4x4x4", Mesh(4, 4, 4)), ("64", Mesh(64)), (" 2X32 ", Mesh(2, 32))])
def test_parse(text, mesh):
    assert Mesh.parse(text, 64) == mesh


@pytest.mark.parametrize("text", ["", "4x", "4xfour", "2x2x2x8", "-8x-8", "8.0x8"])
def test_parse_refuses(text):
    with pytest.raises(UserError, match="give one to three whole numbers, such as 4x4x4"):
        Mesh.parse(text, 64)


def test_chips_that_do_not_match_the_mesh():
    with pytest.raises(UserError, match="mesh 4x4x2: it has 32 chips, not 64; give axes whose product is 64"):
        Mesh.parse("4x4x2", 64)


def test_all_meshes_of_12_chips():
    """Ordered triples with product 2^2 * 3: C(4, 2) ways for the twos by C(3, 2) for the three."""
    meshes = list(Mesh.all_of(12))
    assert len(set(meshes)) == len(meshes) == 6 * 3
    assert {mesh.chips for mesh in meshes} == {12}


@pytest.mark.parametrize(
    ("mesh", "axes", "share"),
    [
        (Mesh(4, 4, 4), "x", 1 / 3),  # two of the six links of a chip in a 3D torus
        (Mesh(4, 4, 4), "yz", 2 / 3),
        (Mesh(4, 4, 4), "xyz", 1),
        (Mesh(1, 2, 4), "yz", 1),  # a 2D torus: its four links all lie along y and z
        (Mesh(1, 2, 4), "xz", 1 / 2),
    ],
)
def test_share_of_links(mesh, axes, share):
    assert mesh.share_of_links(axes) == pytest.approx(share)


@pytest.mark.parametrize(
    ("feedforward", "data", "hidden", "width", "stored"),
    [
        ("ws-1d", 1, 1, 30, (1, 30)),
        ("ws-2d", 1, 2, 15, (2, 15)),
        ("wg-x", 2, 1, 15, (2, 15)),
        ("wg-xy", 6, 1, 5, (2, 15)),
        ("wg-xyz", 30, 1, 1, (2, 15)),
    ],
)
def test_degrees(feedforward, data, hidden, width, stored):
    """Section 3.2: every layout uses all chips, and the weight-gathered ones store weights as ws-2d does."""
    layout = Layout(Mesh(2, 3, 5), feedforward, "heads")
    assert (layout.data, layout.hidden, layout.width) == (data, hidden, width)
    assert layout.data * layout.hidden * layout.width == 30
    assert (layout.stored_hidden, layout.stored_width) == stored


@pytest.mark.parametrize("value", [0, -1, 2.0, "4"])
def test_bad_axis(value):
    with pytest.raises(UserError, match="axis y is"):
        Mesh(2, value)
    with pytest.raises(UserError, match="chips; give a whole number"):
        list(Mesh.all_of(value))


def test_unknown_layouts():
    with pytest.raises(UserError, match=rf"feedforward is '2d'; it must be one of {', '.join(FEEDFORWARD)}"):
        Layout(Mesh(2), "2d", "heads")
    with pytest.raises(UserError, match=f"attention is 'head'; it must be one of {', '.join(ATTENTION)}"):
        Layout(Mesh(2), "ws-2d", "head")


@pytest.mark.parametrize(
    ("model", "layout", "batch", "message"),
    [
        # The paper pads 48 heads to 64 for exactly this (section 4).
        (PALM, Layout(Mesh(4, 4, 4), "ws-2d", "heads"), 1, "the number of heads, 48, does not divide 64 ways; pad it to 64"),
        (LLAMA, Layout(Mesh(1, 1, 3), "ws-1d", "heads"), 1, "the hidden size, 4096, does not divide 3 ways; pad it to 4098"),
        (LLAMA, Layout(Mesh(1, 1, 4096), "ws-1d", "batch"), 4096, "the feed-forward width, 14336, does not divide 4096 ways"),
        # Weights that are gathered for a matmul are divided between matmuls all the same.
        (LLAMA, Layout(Mesh(3, 1, 1), "wg-xyz", "batch"), 3, "the hidden size, 4096, does not divide 3 ways"),
        (LLAMA, Layout(Mesh(1, 1, 3), "wg-xyz", "batch"), 3, "the feed-forward width, 14336, does not divide 3 ways"),
        (PALM, Layout(Mesh(4, 4, 4), "ws-2d", "batch"), 32, "a batch of 32 does not divide 64 ways; take 64"),
        (PALM, Layout(Mesh(4, 4, 4), "wg-xyz", "heads"), 100, "a batch of 100 does not divide 64 ways; take 64"),
    ],
)
def test_refused(model, layout, batch, message):
    with pytest.raises(UserError, match=message):
        layout.check(model, batch)


def test_kv_heads_that_fit_neither_way():
    """6 KV heads among 4 chips: some chips would hold two heads and some one."""
    model = dataclasses.replace(palm("six", layers=2, hidden=768, heads=12), kv_heads=6)
    with pytest.raises(UserError, match="6 KV heads neither divide 4 ways nor into 4 chips"):
        Layout(Mesh(1, 1, 4), "ws-1d", "heads").check(model, 1)
    with pytest.raises(UserError, match="6 KV heads neither divide 4 ways nor into 4 chips"):
        Layout(Mesh(1, 1, 4), "wg-xyz", "batch").check(model, 4)  # whole in a matmul, divided at rest
    Layout(Mesh(1, 1, 3), "ws-1d", "heads").check(model, 1)
    Layout(Mesh(1, 1, 12), "ws-1d", "heads").check(model, 1)


def test_batch_sharding_needs_no_padding():
    """By batch the heads stay split over y and z alone: 48 over 16."""
    Layout(Mesh(4, 4, 4), "ws-2d", "batch").check(PALM, 64)
