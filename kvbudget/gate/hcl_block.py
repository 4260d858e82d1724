"""A block of HCL: its labels, attributes and inner blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvbudget.gate.nodes import EMPTY, Node
from kvbudget.gate.source import Text


@dataclass
class Block:
    """`type "label" { ... }`."""

    type: str
    labels: list[str]
    line: int
    attrs: dict[str, tuple[int, Node]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def attr(self, name: str) -> Node:
        """Value of an attribute, an empty node if absent."""
        return self.attrs[name][1] if name in self.attrs else EMPTY

    def attr_line(self, name: str) -> int:
        return self.attrs[name][0] if name in self.attrs else 0

    def inner(self, name: str) -> list[Block]:
        """Nested blocks of one type (`dynamic` ones are not rendered)."""
        return [block for block in self.blocks if block.type == name]

    def walk(self) -> list[Block]:
        """This block and all below."""
        out = [self]
        for block in self.blocks:
            out += block.walk()
        return out


def to_node(block: Block) -> Node:
    """A block as a map; repeated blocks become lists."""
    items = [(Text.on(key, line), node) for key, (line, node) in block.attrs.items()]
    grouped: dict[str, list[Block]] = {}
    for inner in block.blocks:
        grouped.setdefault(inner.type, []).append(inner)
    for name, blocks in grouped.items():
        if len(blocks) == 1:
            items.append((Text.on(name, blocks[0].line), to_node(blocks[0])))
        else:
            items.append(
                (
                    Text.on(name, blocks[0].line),
                    Node.sequence([to_node(b) for b in blocks], blocks[0].line),
                )
            )
    return Node.mapping(items, block.line)
