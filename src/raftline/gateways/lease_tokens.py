"""Lease tokens: all a settle must name, as one opaque, URL-safe text per message."""

import binascii
from base64 import urlsafe_b64encode
from typing import Annotated

import msgspec

from raftline.model.errors import InvalidArgument
from raftline.model.limits import OFFSET_MAX

TOKEN_CHARS_MAX = 4_000  # more than the longest names make
Number = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]


class LeaseToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One delivery of one message to one group."""

    topic: str
    partition: Number
    group: str
    term: Number
    sequence: Number
    offset: Number
    attempt: Number
    generation: Number


def encode_token(token: LeaseToken) -> str:
    """Return the text a client settles with."""
    return urlsafe_b64encode(_encode(token)).rstrip(b"=").decode()


def decode_token(text: str) -> LeaseToken:
    """Return what a token names. Raises InvalidArgument."""
    try:
        raw = text[:TOKEN_CHARS_MAX].encode("ascii").translate(_TO_PLAIN)
        return _decode(binascii.a2b_base64(raw + b"=" * (-len(raw) % 4), strict_mode=True))
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise InvalidArgument(
            f"{text[:60]!r} is not a lease token", "use the lease_token of a received message"
        ) from error


_TO_PLAIN = bytes.maketrans(b"-_", b"+/")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseToken).decode
