"""Lease tokens: all a settle must name, as one opaque, URL-safe text per message."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from raftline.model.errors import InvalidArgument

TOKEN_CHARS_MAX = 2_000


class LeaseToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One delivery of one message to one group."""

    topic: str
    partition: int
    group: str
    term: int
    sequence: int
    offset: int
    attempt: int
    generation: int


def encode_token(token: LeaseToken) -> str:
    """Return the text a client settles with."""
    return urlsafe_b64encode(_encode(token)).rstrip(b"=").decode()


def decode_token(text: str) -> LeaseToken:
    """Return what a token names. Raises InvalidArgument."""
    try:
        raw = text[:TOKEN_CHARS_MAX].encode("ascii")
        return _decode(urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InvalidArgument(
            f"{text[:60]!r} is not a lease token", "use the lease_token of a received message"
        ) from error


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseToken).decode
