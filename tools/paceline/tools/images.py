"""Images a tool may return."""

from __future__ import annotations

import base64

MEDIA_TYPES = ("image/gif", "image/jpeg", "image/png", "image/webp")


class Image:
    """An image as a tool's result, or as a member of a list of texts and images.

    Not a dataclass: one inside a dict would then silently become a long base64 text, where this is an error.
    """

    __slots__ = ("data", "media_type")

    def __init__(self, data: bytes, media_type: str) -> None:
        """`data`: the bytes of the file; `media_type`: one of `MEDIA_TYPES`. Raises ValueError."""
        if media_type not in MEDIA_TYPES:
            raise ValueError(f"media_type={media_type!r} is none of {', '.join(MEDIA_TYPES)}")
        if not isinstance(data, bytes) or not data:
            raise ValueError("data must be the bytes of an image file, at least one")
        self.data = data
        self.media_type = media_type

    def block(self) -> dict[str, object]:
        """The image as a content block of the API."""
        data = base64.b64encode(self.data).decode()
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": data}}
