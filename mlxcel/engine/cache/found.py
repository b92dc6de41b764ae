"""What the prefix store has for a prompt: how much of it, where, and why not more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlxcel.core.cache import ANONYMOUS, Divergence, Reject
from mlxcel.engine.cache.adopt import StoreRules, adoptable
from mlxcel.engine.cache.explain import diverged, parted
from mlxcel.engine.cache.key import CacheKey
from mlxcel.engine.cache.node import Match, Node, Root, Session, walk
from mlxcel.engine.cache.segment import Payload
from mlxcel.engine.cache.tree import Tree

Pieces = tuple[tuple[Payload, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Nothing was counted for it, and nobody's age changed."""

    key: CacheKey
    tokens: tuple[int, ...]
    """The prompt's."""
    length: int = 0
    """Tokens to adopt from memory, after all rules; 0: none."""
    pieces: Pieces = ()
    """Payloads in order, and how many tokens of each are used: of all but the last the whole."""
    reach: int = 0
    """Tokens to adopt once `missing` was read; not less than `length`."""
    missing: tuple[Node, ...] = ()
    """What must come from the disk for that, in order."""
    reason: Reject | None = None
    """Why `reach` is 0; else, where the prompt parts from an entry, why it is not all that
    agrees."""
    diverged: Divergence | None = None
    """Where nothing can be adopted, or the prompt parts from an entry before its end."""
    is_older: bool = False
    """It is not the beginning of what a session that has a name kept last: it went back."""
    entry_length: int = 0
    """Tokens of the nearest entry."""
    node: Node | None = None
    """The last one that is adopted from."""


def look(
    tree: Tree, rules: StoreRules, key: CacheKey, ids: tuple[int, ...], *, explains: bool = True
) -> Found:
    """`explains` False: of what there is not, neither why nor where, which may take longer than
    all the rest."""
    session = tree.sessions.get(key.session)
    root = tree.known(key)
    if session is not None and root is not None:
        return _found(rules, session, root, ids, explains)
    if session is None or not explains:
        return Found(key=key, tokens=ids, reason=Reject.EMPTY_SET)
    return Found(
        key=key,
        tokens=ids,
        reason=_absence(session.roots, key),
        diverged=diverged(session, key, ids, rules.min_prefix),
    )


def pieces_of(nodes: Iterable[Node], length: int) -> Pieces:
    return tuple(
        (node.held, min(node.stop, length) - node.start)
        for node in nodes
        if node.held is not None and node.start < length
    )


def _found(
    rules: StoreRules, session: Session, root: Root, ids: tuple[int, ...], explains: bool
) -> Found:
    match = walk(root, ids)
    length, _ = _adoptable(rules, match, match.held, len(ids))
    reach, reason = _adoptable(rules, match, match.length, len(ids))
    nearest = match.nodes[-1].latest if match.nodes else None
    entry_length = 0 if nearest is None else nearest.length
    where = None
    if not explains:
        pass
    elif not reach:
        where = diverged(session, root.key, ids, rules.min_prefix)
    elif match.length < min(len(ids), entry_length):
        where = parted(root, match, ids)
        reason = _shortened(rules) if reach < match.length else None
    reached = _last(match.nodes, reach)
    return Found(
        key=root.key,
        tokens=ids,
        length=length,
        pieces=pieces_of(match.nodes, length),
        reach=reach,
        missing=tuple(n for n in match.nodes if n.held is None and n.start < reach),
        reason=reason,
        diverged=where,
        is_older=reached is not None and _went_back(session, reached),
        entry_length=entry_length,
        node=_last(match.nodes, length),
    )


def _adoptable(
    rules: StoreRules, match: Match, agreed: int, prompt: int
) -> tuple[int, Reject | None]:
    ends = (n.stop for n in match.nodes if n.entry is not None and n.stop <= agreed)
    return adoptable(agreed, max(ends, default=0), prompt, rules)


def _shortened(rules: StoreRules) -> Reject:
    return Reject.BLOCK_BOUNDARY_FLOOR if rules.is_apc else Reject.LAYOUT_CONSTRAINTS


def _absence(others: Iterable[CacheKey], key: CacheKey) -> Reject:
    """Long-RoPE models have two sets of factors: what one made is of no use to the other."""
    if any(key.differs_by_rope_alone(other) for other in others):
        return Reject.ROPE_REGIME_MISMATCH
    return Reject.EMPTY_SET


def _last(nodes: Sequence[Node], length: int) -> Node | None:
    return next((node for node in reversed(nodes) if node.start < length), None)


def _went_back(session: Session, reached: Node) -> bool:
    newest = session.newest
    if session.name == ANONYMOUS or newest is None or not newest.is_alive:
        return False
    return reached not in tuple(newest.node.upward())
