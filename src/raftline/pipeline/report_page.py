"""A report as one page of HTML that loads nothing from anywhere."""

import json
from pathlib import Path

from raftline import __version__

FILE = Path(__file__).with_name("report_page.html")
DATA = "/*DATA*/null"
VERSION = "/*VERSION*/"


def page_of(data: object) -> str:
    """Return the page of a report."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Nothing in a key or a reason may end the script that holds it.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    page = FILE.read_text(encoding="utf-8")
    return page.replace(VERSION, __version__, 1).replace(DATA, text, 1)
