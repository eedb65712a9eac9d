"""The head of an HTTP/1.1 request: strict, because what two readers read differently is a hole.

Refused rather than guessed: bare LF or CR, folded lines, space before a colon, names that are no
token, more than one Host or Content-Length (even equal ones), Content-Length beside
Transfer-Encoding, any coding but ``chunked``, control characters.

Costs
    A request line 2-3 us, a block of fields 5-10 us; both are only paid when the connection has
    not seen the same bytes before (connection.py).
"""

import re

HEAD_BYTES_MAX = 16 << 10
FIELDS_MAX = 100
LENGTH_DIGITS_MAX = 15

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_ABSOLUTE = re.compile(rb"(?i:https?)://[^/?#]*")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")
_NOT_PERCENT = "the path or query is not properly percent-encoded UTF-8"
_SINGLE = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect", b"origin"))


class Refused(Exception):
    """The bytes are no request this server takes. The connection is closed after the reply."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestLine:
    """Method, path and query of a request."""

    __slots__ = ("is_1_1", "method", "path", "query")

    def __init__(self, line: bytes) -> None:
        """Parse. Raises Refused."""
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            raise Refused(400, "the first line is no request line: METHOD /path HTTP/1.1")
        method, target, major, minor = match.groups()
        if major != b"1":
            raise Refused(505, "this server speaks HTTP/1.1")
        if not target.startswith(b"/"):
            absolute = _ABSOLUTE.match(target)
            target = target[absolute.end() :] or b"/" if absolute else b"*"
        path, mark, query = target.partition(b"?")
        self.method = method.decode()
        self.path = path.decode()
        self.query = query.decode() if mark else ""
        self.is_1_1 = minor != b"0"


class Fields:
    """The header fields, as far as this server cares. Names are lower case."""

    __slots__ = ("chunked", "close", "expects", "length", "values")

    def __init__(self, block: bytes) -> None:
        """Parse the lines after the request line. Raises Refused."""
        values: dict[bytes, bytes] = {}
        lines = block.split(b"\r\n") if block else []
        if len(lines) > FIELDS_MAX:
            raise Refused(431, f"more than {FIELDS_MAX} header fields")
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or _NAME.fullmatch(name) is None or _CONTROL.search(value):
                raise Refused(400, "a header field is malformed")
            name, value = name.lower(), value.strip(b" \t")
            if name in values:
                if name in _SINGLE:
                    raise Refused(400, f"more than one {name.decode()} field")
                value = values[name] + b", " + value
            values[name] = value
        self.values = values
        self.length = _length(values)
        self.chunked = _is_chunked(values)
        self.close = _tokens(values.get(b"connection", b""))
        self.expects = _expects(values)

    def text(self, name: bytes) -> str:
        """Return a field as text; "" if it is not there."""
        return self.values.get(name, b"").decode("latin-1")


def check(line: RequestLine, fields: Fields) -> None:
    """Refuse what only line and fields together show to be wrong."""
    if line.is_1_1 and b"host" not in fields.values:
        raise Refused(400, "the Host field is missing")
    if fields.chunked and not line.is_1_1:
        raise Refused(400, "Transfer-Encoding came with HTTP/1.1")
    origin = fields.values.get(b"origin")
    if origin is not None and line.method not in {"GET", "HEAD"}:
        host = fields.values.get(b"host", b"")
        if origin.partition(b"://")[2] != host:
            raise Refused(403, "requests from pages of another origin are not taken")


def is_closing(line: RequestLine, fields: Fields) -> bool:
    """Say whether the connection ends after this request."""
    return fields.close or not line.is_1_1


def unquote(text: str, *, plus: bool = False) -> str:
    """Undo percent encoding. Raises Refused."""
    if plus:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    try:
        return _PERCENT.sub(_byte, text.encode()).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, _NOT_PERCENT) from error


def parse_query(query: str, lists: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the parameters; an empty value is as good as none. Raises Refused.

    Those of ``lists`` may come more than once: their values are joined by commas.
    """
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote(name, plus=True)
        if name in found and name not in lists:
            raise Refused(400, f"the parameter {name[:40]!r} is there twice")
        if value:
            text = unquote(value, plus=True)
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _byte(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        raise Refused(400, _NOT_PERCENT)
    return bytes.fromhex(match[1].decode())


def _length(values: dict[bytes, bytes]) -> int:
    text = values.get(b"content-length")
    if text is None:
        return 0
    if not text.isdigit() or len(text) > LENGTH_DIGITS_MAX:
        raise Refused(400, "Content-Length is not a number of bytes")
    if b"transfer-encoding" in values:
        raise Refused(400, "Content-Length and Transfer-Encoding contradict each other")
    return int(text)


def _is_chunked(values: dict[bytes, bytes]) -> bool:
    coding = values.get(b"transfer-encoding")
    if coding is None:
        return False
    if coding.lower() != b"chunked":
        raise Refused(501, "the only transfer coding here is chunked")
    return True


def _tokens(connection: bytes) -> bool:
    return any(token.strip() == b"close" for token in connection.lower().split(b","))


def _expects(values: dict[bytes, bytes]) -> bool:
    expect = values.get(b"expect")
    if expect is None:
        return False
    if expect.lower() != b"100-continue":
        raise Refused(417, "the only expectation here is 100-continue")
    return True
