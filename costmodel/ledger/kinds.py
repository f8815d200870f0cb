"""What kind of data an operand or a result is, and in which form it moves.

Kinds: `kv`, the state that the program updates (donated, or returned after an update); `weights`, the other parameters in floating point
or of at most 8 bits (quantised); `argument`, the other parameters (tokens, tables) and constants; `output`, what leaves the program;
`intermediate`, the rest. A parameter's data keeps its kind through slices, copies, conversions and gathers, see
`costmodel.ledger.provenance`. No name is looked at.
"""

from __future__ import annotations

from costmodel.hlo.module import Instruction, Module, Shape
from costmodel.hlo.pairs import phase, result_path
from costmodel.ledger.components import Attribution, primitive
from costmodel.ledger.dataflow import Dataflow
from costmodel.ledger.operands import Operand
from costmodel.ledger.provenance import FORMS, Provenance, Source

KINDS = ("weights", "kv", "argument", "intermediate", "output")
# The form in which data moves: `FORMS`, of a parameter's data where it lies or of a copy that was made of it; a copy in the making that
# is as good as the original; an update in place; and what is computed.
ROLES = (*FORMS, "copied", "updated", "partials", "logits", "scores", "activations", "indices")

_QUANTISED = frozenset({"s2", "u2", "s4", "u4", "s8", "u8"})
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot_general"})


class Kinds:
    """The kinds and roles of a module's operands and results."""

    def __init__(self, module: Module, flow: Dataflow, attribution: Attribution) -> None:
        self.module, self.flow, self.attribution = module, flow, attribution
        self.origins = Provenance(module)
        self.state = self.origins.returned | set(module.aliases.values())
        self.outputs = flow.outputs()
        self.computed: dict[tuple[str, str], str] = {}

    def __call__(self, computation: str, instruction: Instruction, part: Operand, copied: bool) -> tuple[str, str]:
        """(kind, role) of a part; `copied`: the instruction makes a second original, see `copies`."""
        if isinstance(part.place, int) and part.place < 0:
            return "argument", "in place"
        if isinstance(part.place, int):
            origin, output = self.origins(computation, instruction.operands[part.place]), None
        else:
            origin = self._result(computation, instruction.name, part.place)
            output = self.outputs.get((computation, instruction.name))
        if origin.producer and self._maker(origin.producer).opcode == "constant":
            return "argument", "in place"
        kind = self._kind(origin)
        if origin.parameter is None and output is not None:
            kind = "kv" if output in self.module.aliases else "output"
        if origin.parameter is None:
            return kind, self._role(origin, part.shape)
        return kind, "updated" if part.update else "copied" if copied else origin.form

    def copies(self, computation: str, instruction: Instruction) -> bool:
        """Whether this makes a second original of a parameter's data, rather than a piece or another form of it."""
        result = self._result(computation, instruction.name, ())
        return bool(result.parameter) and any(self.origins(computation, name) == result for name in instruction.operands)

    def _result(self, computation: str, name: str, path: tuple[int, ...]) -> Source:
        """The origin of a result; of an asynchronous instruction, within the tuple of its start."""
        operation, when = phase(self.module.computations[computation].instructions[name])
        return self.origins(computation, name, (*result_path(operation), *path) if when == "start" else path)

    def _kind(self, origin: Source) -> str:
        if origin.parameter is None:
            return "intermediate"
        if origin.parameter in self.state:
            return "kv"
        number, path = origin.parameter
        shape = self.module.entry.parameters[number].shape
        for index in path:
            shape = shape.parts[index]
        floating = shape.dtype.startswith(("f", "bf"))
        return "weights" if shape.dims and (floating or shape.dtype in _QUANTISED) else "argument"

    def _role(self, origin: Source, shape: Shape) -> str:
        """The role of what the program computed."""
        if shape.dtype == "pred" or (shape.dtype[0] in "su" and shape.dtype not in _QUANTISED):
            return "indices"
        if origin.producer is None:
            return "activations"
        if origin.producer not in self.computed:
            self.computed[origin.producer] = self._computed(*origin.producer)
        return self.computed[origin.producer]

    def _maker(self, producer: tuple[str, str]) -> Instruction:
        return self.module.computations[producer[0]].instructions[producer[1]]

    def _computed(self, computation: str, name: str) -> str:
        # No one writes a sum over the result of a product under the product's own name; the compiler does, having split the product.
        readers = list(self.flow.readers((computation, name, ())))
        for holder, reader in readers:
            if reader.opcode == "convert":
                readers.extend(self.flow.readers((holder, reader.name, ())))
            elif reader.opcode == "reduce" and primitive(reader.op_name) in _PRODUCTS:
                return "partials"
        component = self.attribution.work(computation, self._maker((computation, name)))
        return {"head": "logits", "scores": "scores", "softmax": "scores"}.get(component, "activations")
