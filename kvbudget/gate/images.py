"""Container images: tag or digest, whether it pins, and when the tag is the engine's release."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvbudget.gate.source import HOLE

_RELEASE = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)(?![\d.])")
_MOVING = re.compile(
    r"(?:(?:cu|rocm)[\d.]*[-_])?(latest|nightly|main|master|dev|edge|stable)(?:[-_](?!.*\d{6}).*)?\Z",
    re.I,
)


@dataclass(frozen=True)
class Image:
    """`repository[:tag][@digest]`."""

    repository: str
    tag: str | None
    digest: str | None

    @property
    def hint(self) -> str | None:
        """The tag, verbatim; the digest if there is no tag."""
        return self.tag or self.digest

    @property
    def pinned(self) -> bool:
        """A digest or a tag that does not move."""
        return self.digest is not None or (self.tag is not None and not moving(self.tag))


def moving(tag: str) -> bool:
    """True for a tag that names no fixed release."""
    return _MOVING.match(tag) is not None


def parse_image(text: str) -> Image | None:
    """None where a part of the reference is not known."""
    text = text.strip()
    if not text or HOLE in text:
        return None
    for prefix in ("docker://", "docker:"):
        text = text.removeprefix(prefix)
    digest = None
    if "@" in text:
        text, _, digest = text.partition("@")
    tag = None
    head, colon, tail = text.rpartition(":")
    if colon and "/" not in tail:
        text, tag = head, tail
    return Image(text, tag or None, digest)


def engine_release(image: Image) -> str | None:
    """Release of the engine, only where the image is the engine's own (or a mirror of it)."""
    parts = image.repository.split("/")
    last_two = "/".join(parts[-2:])
    if last_two in ("vllm/vllm-openai", "lmsysorg/sglang"):
        return release(image.tag) if image.tag else None
    if last_two.startswith("rocm/vllm") and image.tag:
        named = re.search(r"vllm[_-]v?(\d+\.\d+(?:\.\d+)?)", image.tag) or _RELEASE.match(image.tag)
        return named.group(1) if named else None
    if last_two.startswith("vllm/vllm-openai-") and image.tag:
        return release(image.tag)
    return None


def release(text: str | None) -> str | None:
    """`v0.4.6.post5-cu124` -> `0.4.6.post5`."""
    match = _RELEASE.match(text or "")
    return match.group(1) if match else None
