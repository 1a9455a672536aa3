"""One HTML file that needs nothing else.

Style and script are inside, and the content security policy allows only these, by digest, so that a
sentence can't become code. Data is JSON in a block of its own, or a picture within the file.
`theme.css` beside this module has the colours, also of the server's page.
"""

import base64
import hashlib
import html
import importlib.resources
import json
from collections.abc import Sequence
from typing import Any


def standalone(title: str, *, body: str, style: str, script: str = "", data: Any = None) -> str:
    """The file's text: `body` is HTML, and the script finds JSON `data` in the element `data`."""
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    block = ""
    if data is not None:
        # Within a script element nothing but "</script" and "<!--" would be read as HTML.
        content = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
        block = f'<script type="application/json" id="data">{content}</script>\n'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
{block}<script>{script}</script>
</body>
</html>
"""


def text(content: str) -> str:
    """Text as HTML; control characters as their pictures."""
    visible = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
    return html.escape(content.translate(visible), quote=True)


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain texts as a scrolling HTML table; first cells are headings."""
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{text(heading)}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in cells)
        + "</tr>"
        for heading, *cells in rows
    )
    return (
        f'<div class="wide" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        "</div>"
    )


def figure_style(package: str, name: str) -> str:
    """The style of a page with a figure: of all of them, then its own."""
    shared = asset("flaxformer_mt", "theme.css") + asset("flaxformer_mt", "page.css")
    return shared + asset(package, name)


def asset(package: str, name: str) -> str:
    return importlib.resources.files(package).joinpath(name).read_text("utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
