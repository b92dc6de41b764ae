"""Parts of a message that are no text: what each kind has to carry.

No model here takes them yet; a part that is malformed is the client's mistake all the same, and
told before that.
"""

from mlxcel.protocols.fields import Reader, shown

MEDIA_PARTS = {"image_url": "image", "input_audio": "audio", "video_url": "video"}
DETAILS = ("low", "high", "auto")


def check_media(part: Reader) -> None:
    """Raises BadField for a payload that is not as its type says."""
    kind = part.body["type"]
    payload = part.nested(kind)
    if payload is None:
        raise part.refuse(kind, "is required; it wants an object")
    if kind == "input_audio":
        payload.required_string("data")
        payload.string("format")
        return
    payload.required_string("url")
    if kind == "video_url":
        payload.number("fps")
        return
    payload.integer("max_soft_tokens")
    detail = payload.string("detail")
    if detail is not None and detail.lower() not in DETAILS:
        raise payload.refuse("detail", f"wants one of {', '.join(DETAILS)}; got {shown(detail)}")
