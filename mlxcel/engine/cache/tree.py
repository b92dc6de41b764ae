"""A radix tree of token runs below one root per key, and the account of what its nodes hold.

A node has the KV of its run in memory, in a file, or both; one with neither leads nowhere and is
not kept, nor is anything below it. What is in memory is connected with the root: a node is held
only below nodes that are held. Knows no rule of what is kept how long.
"""

from collections.abc import Iterator

from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.node import Entry, Match, Node, Piece, Root, Session
from mlxcel.engine.cache.segment import Payload

__all__ = ["Entry", "Match", "Node", "Piece", "Root", "Session", "Tree"]


class Tree:
    """Owned by the tick."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.bytes = 0
        """Of all payloads."""
        self._fresh: dict[Node, None] = {}
        self._in_file: dict[str, dict[Node, None]] = {}
        self._cut_off: dict[str, None] = {}
        """Files whose last node was taken out because of what stands before it."""

    def session(self, name: str) -> Session:
        return self.sessions.setdefault(name, Session(name))

    def root(self, key: CacheKey) -> Root:
        return self.session(key.session).roots.setdefault(key, Root(key))

    def known(self, key: CacheKey) -> Root | None:
        session = self.sessions.get(key.session)
        return None if session is None else session.roots.get(key)

    def nodes(self) -> Iterator[Node]:
        """All but the tops."""
        for session in self.sessions.values():
            for root in session.roots.values():
                for node in root.top.downward():
                    if node.parent is not None:
                        yield node

    def of_file(self, file: str) -> tuple[Node, ...]:
        return tuple(self._in_file.get(file, ()))

    def take_fresh(self) -> list[Node]:
        """Nodes that were given a payload since this was last asked, and have it still."""
        fresh = list(self._fresh)
        self._fresh.clear()
        return fresh

    def take_cut_off(self) -> list[str]:
        """Files that no node stands in any more, since what stands before them has gone; each is
        told once."""
        files = [file for file in self._cut_off if file not in self._in_file]
        self._cut_off.clear()
        return files

    def clear(self) -> None:
        for session in self.sessions.values():
            for root in session.roots.values():
                root.is_current = False
                for node in root.top.downward():
                    # Nodes and entries refer to each other: by themselves they would go, and what
                    # they hold with them, at some later run of the garbage collector.
                    node.held, node.is_attached = None, False
        self.sessions.clear()
        self._in_file.clear()
        self._cut_off.clear()
        self._fresh.clear()
        self.bytes = 0

    # What a node holds

    def hold(self, node: Node, payload: Payload) -> None:
        self.drop(node)
        node.held = payload
        self.bytes += payload.nbytes
        self._fresh[node] = None

    def drop(self, node: Node) -> None:
        if node.held is not None:
            self.bytes -= node.held.nbytes
            node.held = None
            self._fresh.pop(node, None)

    def put(self, node: Node, piece: Piece | None) -> None:
        if node.piece is not None:
            others = self._in_file[node.piece.file]
            del others[node]
            if not others:
                del self._in_file[node.piece.file]
        node.piece = piece
        if piece is not None:
            self._in_file.setdefault(piece.file, {})[node] = None

    # The shape

    def grow(self, parent: Node, tokens: tuple[int, ...]) -> Node:
        """A new leaf. Its caller gives it something to hold, and an entry."""
        node = Node(parent.root, parent, tokens, parent.stop)
        parent.children[tokens[0]] = node
        return node

    def split(self, node: Node, at: int) -> Node:
        """Cut a node before its token `at`, counted from its own start; its upper part."""
        assert node.parent is not None
        upper = Node(node.root, node.parent, node.tokens[:at], node.start)
        upper.holders, upper.latest = node.holders, node.latest
        node.parent.children[upper.tokens[0]] = upper
        held, piece = node.held, node.piece
        node.parent, node.tokens, node.start = upper, node.tokens[at:], node.start + at
        upper.children[node.tokens[0]] = node
        if held is not None:
            self.hold(upper, held.cut(0, at))
            self.hold(node, held.cut(at, held.tokens))
        if piece is not None:
            self.put(upper, piece.cut(0, at))
            self.put(node, piece.cut(at, piece.stop - piece.start))
        return upper

    def end_of(self, key: CacheKey, match: Match) -> Node:
        """Where the tokens of a match end: the top for none; the last node, split where it goes
        on."""
        if not match.length:
            return self.root(key).top
        last = match.nodes[-1]
        return last if last.stop == match.length else self.split(last, match.length - last.start)

    def uproot(self, node: Node) -> None:
        """Take a node and all below it out. None of them is held."""
        parent = node.parent
        assert parent is not None
        del parent.children[node.tokens[0]]
        for gone in node.downward():
            assert gone.held is None, "what is in memory must not lose its way to the root"
            if gone.piece is not None:
                self._cut_off[gone.piece.file] = None
            self.put(gone, None)
            gone.is_attached = False
        self._tidy(parent)

    def _tidy(self, node: Node) -> None:
        """After a child has gone: a leaf has an entry, a root is not empty."""
        if node.parent is None:
            if not node.children:
                self._close(node.root)
            return
        if not node.children and node.entry is None:
            node.entry = Entry(node, is_held=False, is_asked=False)
        self._rerank(node)

    def _close(self, root: Root) -> None:
        session = self.sessions[root.key.session]
        del session.roots[root.key]
        if not session.roots:
            del self.sessions[session.name]

    # Entries

    def enter(self, node: Node, *, is_held: bool, is_asked: bool = True) -> Entry:
        """The entry at the end of a node, made where there is none. A held one holds the way to
        it, all of which is in memory."""
        entry = node.entry
        if entry is None:
            entry = node.entry = Entry(node, is_held=False, is_asked=is_asked)
            self._rerank(node)
        entry.is_asked = entry.is_asked or is_asked
        if is_held and not entry.is_held:
            entry.is_held = True
            for step in node.upward():
                step.holders += 1
        return entry

    def touch(self, entry: Entry, rank: int) -> None:
        """It is used: `rank` is higher than any before."""
        entry.rank = rank
        for node in entry.node.upward():
            node.latest = entry

    def strike(self, entry: Entry) -> None:
        """Take away an entry that a deeper one stands for; the nodes stay."""
        if entry.is_held:
            entry.is_held = False
            for node in entry.node.upward():
                node.holders -= 1
        entry.node.entry = None
        self._rerank(entry.node)

    def release(self, entry: Entry) -> None:
        """It leaves memory, and with it what no other held entry needs. What stands in files
        stays known."""
        entry.is_held, entry.rank = False, 0
        useless = None
        for node in entry.node.upward():
            node.holders -= 1
            if not node.holders:
                self.drop(node)
                useless = node if node.piece is None else useless
        self._rerank(entry.node, entry)
        if useless is not None:
            self.uproot(useless)

    def _rerank(self, node: Node, changed: Entry | None = None) -> None:
        """Find anew who was used last, from here up to where that was somebody else than an entry
        that has `changed` or gone: a node may have a thousand children."""
        for step in node.upward():
            last = step.latest
            if last is not None and last is not changed and last.is_alive:
                return
            ends = [child.latest for child in step.children.values()]
            step.latest = max(
                (end for end in (step.entry, *ends) if end is not None),
                key=lambda entry: entry.rank,
                default=None,
            )

    def check(self) -> None:
        """Our own invariants, for tests."""
        nodes = list(self.nodes())
        assert self.bytes == sum(node.held.nbytes for node in nodes if node.held is not None)
        assert {file: {*held} for file, held in self._in_file.items()} == _files(nodes)
        assert all(node.held is not None for node in self._fresh)
        for session in self.sessions.values():
            assert session.roots, f"{session.name} has no key"
            for key, root in session.roots.items():
                assert root.key == key and root.is_current and root.top.children
        for node in nodes:
            _check_node(node)


def _files(nodes: list[Node]) -> dict[str, set[Node]]:
    files: dict[str, set[Node]] = {}
    for node in nodes:
        if node.piece is not None:
            files.setdefault(node.piece.file, set()).add(node)
    return files


def _check_node(node: Node) -> None:
    above = node.parent
    assert above is not None and node.is_attached and above.children[node.tokens[0]] is node
    assert above.stop == node.start and node.root is above.root
    assert node.held is not None or node.piece is not None, "it has nothing"
    assert node.held is None or node.held.tokens == len(node.tokens)
    assert node.piece is None or node.piece.stop - node.piece.start == len(node.tokens)
    assert node.held is None or above.parent is None or above.held is not None, (
        "it hangs in the air"
    )
    assert (node.held is not None) == (node.holders > 0), "held for nobody, or not for its entry"
    # Those below say it of all below them: looked at one by one, a long branch is looked at
    # from each of its nodes.
    own = [] if node.entry is None else [node.entry]
    children = node.children.values()
    assert node.holders == sum(e.is_held for e in own) + sum(c.holders for c in children)
    assert children or own, "nothing ends at a leaf"
    assert node.entry is None or node.entry.node is node
    ends = [*own, *(child.latest for child in children if child.latest is not None)]
    assert node.latest in ends and node.latest.rank == max(entry.rank for entry in ends)
