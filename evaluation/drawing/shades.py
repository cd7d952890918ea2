"""Shades of pages: of text, lines and paper; and how an interactive chart begins."""

INK = "#1a1c1f"  # becomes the page's text colour
SOFT, LINE, TINT, PAPER = "#5a616a", "#d9dce0", "#f4f6f8", "#fefefe"
DARK = {INK: "#e6e8ea", SOFT: "#a3abb4", LINE: "#363b42", TINT: "#1f2226", PAPER: "#16181b"}  # in place of each

INTERACTIVE = '<div class="chart"'
