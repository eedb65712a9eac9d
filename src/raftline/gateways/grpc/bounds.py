"""Numbers in requests: 0 is what a client leaves out, so it means the default."""

from raftline.model.errors import InvalidArgument, TooLarge


def bounded(name: str, value: int, default: int, low: int, high: int) -> int:
    """Return a number in ``[low, high]``; the default for 0. Raises InvalidArgument."""
    if value == 0:
        return default
    if not low <= value <= high:
        raise InvalidArgument(f"{name}={value} is out of bounds", f"allowed is {low} to {high}")
    return value


def short(what: str, text: str, chars_max: int) -> str:
    """Return a text that is not too long. Raises TooLarge."""
    if len(text) > chars_max:
        raise TooLarge(f"characters of {what}", len(text), chars_max)
    return text


def counted(what: str, count: int, count_max: int) -> None:
    """Refuse none and too many. Raises InvalidArgument, TooLarge."""
    if not count:
        raise InvalidArgument(f"there are no {what}", "send at least one")
    if count > count_max:
        raise TooLarge(f"{what} in one request", count, count_max)
