"""What the tree of the prefix store is made of: runs of tokens with their KV, and entries, the ends
of what was kept.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mlxcel.engine.cache.disk.run import Run
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.segment import Payload


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of a file."""

    file: str
    start: int
    stop: int

    def cut(self, start: int, stop: int) -> "Piece":
        return Piece(self.file, self.start + start, self.start + stop)


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """The end of something that was kept. Mutable, owned by the store."""

    node: "Node"
    is_held: bool
    """All of it is in memory: it is counted, aged and evicted. Else it is on disk."""
    rank: int = 0
    """Grows with each use; 0 while it is on disk only."""
    used_at: float = 0.0
    is_asked: bool = True
    """False: nobody kept it so; it stands where a run that was read back happens to end."""

    @property
    def length(self) -> int:
        return self.node.stop

    @property
    def is_alive(self) -> bool:
        return self.node.entry is self and self.node.is_attached


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """Mutable, owned by the tree. A node that is split stays the lower part, so that what hangs
    below it, and the entry at its end, need not know."""

    root: "Root"
    parent: "Node | None"
    """None: the top, which has no tokens. Nodes that left the tree still know theirs."""
    tokens: tuple[int, ...]
    start: int
    children: "dict[int, Node]" = field(default_factory=dict)
    held: Payload | None = None
    piece: Piece | None = None
    entry: Entry | None = None
    holders: int = 0
    """Held entries that end here or below."""
    latest: Entry | None = None
    """The entry used last that ends here or below."""
    is_attached: bool = True

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)

    @property
    def key(self) -> CacheKey:
        return self.root.key

    @property
    def prefix(self) -> tuple[int, ...]:
        """All tokens before this run."""
        return self.between(0, self.start)

    def run(self) -> Run:
        return Run(key=self.key, prefix=self.prefix, tokens=self.tokens)

    def between(self, start: int, stop: int) -> tuple[int, ...]:
        """Tokens start..stop of the way from the top to the end of this node."""
        runs = []
        for node in self.upward():
            if node.stop <= start:
                break
            runs.append(node.tokens[max(0, start - node.start) : max(0, stop - node.start)])
        return tuple(token for run in reversed(runs) for token in run)

    def upward(self) -> "Iterator[Node]":
        """This node and those above it, without the top."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def downward(self) -> "Iterator[Node]":
        """This node and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())


@dataclass(slots=True, eq=False, repr=False)
class Root:
    """All that was kept under one key."""

    key: CacheKey
    is_current: bool = True
    """False after a reset: what still comes back from the disk is for nobody."""
    top: Node = field(init=False)

    def __post_init__(self) -> None:
        self.top = Node(self, None, (), 0)


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """All keys of one session, and its entries."""

    name: str
    roots: dict[CacheKey, Root] = field(default_factory=dict)
    held: "OrderedDict[Entry, None]" = field(default_factory=OrderedDict)
    """Least recently used first."""
    newest: Entry | None = None
    """The entry made last."""
    used_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Match:
    """The way of some tokens down a tree."""

    nodes: tuple[Node, ...]
    """The last one may be left before its end."""
    length: int
    """Tokens that agree."""

    @property
    def held(self) -> int:
        """Of these, how many have their KV in memory."""
        for node in self.nodes:
            if node.held is None:
                return node.start
        return self.length


def walk(root: Root, tokens: tuple[int, ...]) -> Match:
    """As far as the tokens agree."""
    nodes: list[Node] = []
    node, length = root.top, 0
    while length == node.stop and length < len(tokens):
        child = node.children.get(tokens[length])
        if child is None:
            break
        nodes.append(child)
        length += agreed(child.tokens, tokens, length)
        node = child
    return Match(tuple(nodes), length)


def agreed(run: Sequence[int], tokens: Sequence[int], at: int) -> int:
    """How many tokens of a run are those of `tokens` from `at` on. Slices are compared, which is
    many times faster than a loop over tokens: longer ones as long as they are equal, so that runs
    that soon part are not copied as a whole; then shorter ones."""
    low, high = 0, min(len(run), len(tokens) - at)
    step, is_near = 16, False
    while low < high:
        step = min(step, high - low)
        if run[low : low + step] == tokens[at + low : at + low + step]:
            low += step
            step = step if is_near else 2 * step
        elif step == 1:
            break
        else:
            step, is_near = step // 2, True
    return low
