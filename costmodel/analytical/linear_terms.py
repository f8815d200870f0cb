"""The terms of the layers that meet each token by itself: embedding, norms, matmuls, experts, head, and what chips send each other.

A matmul reads its weights once a step, whatever the rows, and its activations in and out: 2 T d d' FLOP on s (d d' + T d + T d') B.
Softmax, norms and the like cost a few FLOP an element, which XLA counts too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.analytical.rows import Rows
from costmodel.analytical.terms import Term
from costmodel.arch.deployment import COMPONENTS, Deployment
from costmodel.arch.weights import Weight
from costmodel.hardware.chip import Quantity

LOGIT_BYTES = 4.0  # logits are f32 whatever the model is in
_BLOCK = tuple(name for name in COMPONENTS if name not in ("embed", "norm", "head"))
_MODULE = "shapes of the model; 2 FLOP a weight and token"


def linear_terms(held: Deployment, rows: Sequence[Rows]) -> Iterator[Term]:
    """All of them, in the order in which a step meets them."""
    tokens, samples = sum(r.tokens for r in rows), sum(r.samples for r in rows)
    yield from _embedding(held, tokens)
    yield from _norms(held, tokens)
    for component in _BLOCK:
        weights = [w for w in held.architecture.weights if w.component == component]
        if weights:
            yield from _matmuls(held, component, weights, tokens)
    yield from _activation_functions(held, tokens)
    yield from _head(held, samples)
    if held.degree > 1:
        yield from _collectives(held, tokens, samples)


def _embedding(held: Deployment, tokens: Quantity) -> Iterator[Term]:
    """A row a token; a chip that holds part of the vocabulary reads its part of them, one in `degree` on average."""
    (table,) = (w for w in held.architecture.weights if w.component == "embed")
    stored, hidden = held.storage.weight(table), float(held.architecture.hidden)
    read = stored.row_bytes(hidden) / held.degree * tokens
    compute, written = held.storage.activation.compute, held.storage.activation_bytes * hidden * tokens
    source = "the table is indexed, not multiplied"
    yield Term("embedding rows", "embed", "weights", 0.0, read, 0.0, compute, "T h s B", source)
    yield Term("embedding activations", "embed", "activations", 0.0, written, 0.0, compute, "T h a B written", source)


def _norms(held: Deployment, tokens: Quantity) -> Iterator[Term]:
    """4 FLOP an element: square, sum, times 1/rms, times scale (Zhang and Sennrich 2019). Norms of q and k meet each head."""
    a = held.architecture
    norms = [w for w in a.weights if w.component == "norm"]
    vectors, _ = a.kv_vectors(held.degree)
    times = {"q_norm": held.heads, "k_norm": vectors // 2}
    each = float(sum(w.elements * times.get(w.name.rpartition(".")[2], 1) for w in norms))
    residual = float(sum(w.elements for w in norms if w.shape == (a.hidden,)))
    read = sum(w.count * held.weight_bytes(w) for w in norms)
    compute, moved = held.storage.activation.compute, 4.0 * held.storage.activation_bytes * residual * tokens
    yield Term("norms", "norm", "weights", 4.0 * each * tokens, read, 0.0, compute, "P s B; 4 P T FLOP", "RMSNorm")
    formula = "4 T h a B a norm: branch and residual read, residual and normalised written"
    yield Term("norm activations", "norm", "activations", 0.0, moved, 0.0, compute, formula, "norm and addition in one pass")


def _matmuls(held: Deployment, component: str, weights: list[Weight], tokens: Quantity) -> Iterator[Term]:
    """Weights of one component, and its activations in and out."""
    experts = held.architecture.experts
    routed = 0.0 if experts is None else experts.top_k / experts.count
    met = 0.0 if experts is None else experts.distinct(tokens) / experts.count
    flops, read, moved, compute = 0.0, 0.0, 0.0, held.storage.activation.compute
    for w in weights:
        shape, share = held.shape(w), routed if w.routed else 1.0
        read = read + float(w.count) * held.weight_bytes(w) * (met if w.routed else 1.0)
        if len(shape) == 1:  # a bias: one addition an element
            flops = flops + float(w.count * shape[0]) * tokens
            continue
        compute = held.storage.multiplied_in(held.storage.weight(w))
        flops = flops + 2.0 * w.count * shape[0] * shape[1] * share * tokens
        inputs = 0 if w.split == "kv_heads" else shape[1]  # the matmul of q, k and v reads its input once
        moved = moved + held.storage.activation_bytes * w.count * (shape[0] + inputs) * share * tokens
    formula, source = "P s B; 2 P T FLOP", _MODULE
    if component == "experts":
        formula = "L E (1 - (1 - k/E)^T) P_expert s B and shared ones once; 2 (k P_expert + P_shared) L T FLOP"
        source = "expected distinct experts of T tokens that each pick k of E evenly"
    yield Term(component, component, "weights", flops, read, 0.0, compute, formula, f"{source} ({held.architecture.source})")
    formula = "a (T d + T d') B a matmul"
    yield Term(
        f"{component} activations",
        component,
        "activations",
        0.0,
        moved,
        0.0,
        compute,
        formula,
        "input read, output written, once a matmul",
    )


def _activation_functions(held: Deployment, tokens: Quantity) -> Iterator[Term]:
    """silu(gate) * up: negate, exponential, add, divide, multiply."""
    a, compute = held.architecture, held.storage.activation.compute
    experts = a.experts
    dense = a.layers if experts is None else experts.dense_layers
    wide = {"gate_up": float(dense * a.ffn)}
    if experts is not None:
        wide["experts"] = float((a.layers - dense) * (experts.top_k * experts.ffn + experts.shared_ffn))
    for component, width in wide.items():
        if width:
            flops = 5.0 * width / held.degree * tokens
            yield Term(
                "activation function", component, "none", flops, 0.0, 0.0, compute, "5 T ffn FLOP a layer", "SwiGLU, fused"
            )


def _head(held: Deployment, samples: Quantity) -> Iterator[Term]:
    """Logits of the N tokens that something follows. A tied head reads the embedding whole, as a matrix."""
    head, storage = held.architecture.head, held.storage
    rows, columns = held.shape(head)
    compute, read = storage.multiplied_in(storage.weight(head)), held.weight_bytes(head)
    tied = "the embedding, tied" if held.architecture.tied_head else "a matrix of its own"
    yield Term("head", "head", "weights", 2.0 * rows * columns * samples, read, 0.0, compute, "V h s B; 2 V h N FLOP", tied)
    moved = storage.activation_bytes * columns * samples
    yield Term("head activations", "head", "activations", 0.0, moved, 0.0, compute, "N h a B read", "input read once")
    logits = LOGIT_BYTES * rows * samples
    yield Term("logits", "head", "activations", 0.0, logits, 0.0, compute, "4 N V B written", "f32 logits")
    yield Term(
        "sampling", "sample", "activations", 1.0 * rows * samples, logits, 0.0, compute, "4 N V B read; N V FLOP", "argmax"
    )


def _collectives(held: Deployment, tokens: Quantity, samples: Quantity) -> Iterator[Term]:
    """A ring sends 2 (n-1)/n of a sum's size from each chip, (n-1)/n of what is gathered (Shoeybi et al. 2019; Pope et al. 2022, A.1)."""
    a, n = held.architecture, float(held.degree)
    compute, source = held.storage.activation.compute, "ring"
    sums = a.layers * (1 if a.parallel else 2) + 1
    sent = 2.0 * (n - 1.0) / n * sums * a.hidden * held.storage.activation_bytes * tokens
    formula = f"2 (n-1)/n T h a B, {sums} times: embedding, " + (
        "each layer" if a.parallel else "attention and MLP of each layer"
    )
    yield Term("all-reduces", "collectives", "none", 0.0, 0.0, sent, compute, formula, source)
    gathered = (n - 1.0) * held.shape(a.head)[0] * LOGIT_BYTES * samples
    yield Term("logits all-gather", "collectives", "none", 0.0, 0.0, gathered, compute, "4 (n-1)/n N V B", source)
