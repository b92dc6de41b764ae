"""How large a request may be, and where the media it names may come from."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.graph.rules.finding import Finding, Settled, Tree

LEAST_BODY, MOST_BODY = 2 << 20, 2 << 30
TEXT_BYTES = 1 << 20
WRAPPING_BYTES = 512
"""JSON around one image."""
NOT_READ = "the models that are served read text only"


def body_limit(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Room for the images that a request may bring as base64, and for its text."""
    if read(tree, "limits.body_bytes") is not None:
        return
    payload = read(tree, "limits.image.payload_bytes")
    images = read(tree, "limits.image.max_images")
    encoded = 4 * -(-payload // 3) + WRAPPING_BYTES
    wanted = images * encoded + TEXT_BYTES if images and payload else 0
    used = min(max(wanted, LEAST_BODY), MOST_BODY)
    yield Settled(key="limits.body_bytes", used=used)


def media_unread(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """What opens a way for media opens nothing yet, and whoever set it should know."""
    for key, closed in (
        ("limits.media_path", None),
        ("limits.allow_private_media_urls", False),
        ("limits.video.dir_allowlist", []),
    ):
        if read(tree, key) != closed:
            yield f"{key} has no effect: {NOT_READ}"
