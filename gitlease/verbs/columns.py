"""Texts in columns of a terminal: their width, and shorter ones."""

from __future__ import annotations


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` columns, whose middle gave way if it was longer."""
    if width_of(text) <= width:
        return text
    # The end of a path tells most.
    end = start_of(text[::-1], (width - 1) * 2 // 3)[::-1]
    return f"{start_of(text, width - 1 - width_of(end))}…{end}"


def start_of(text: str, width: int) -> str:
    """Return the beginning of a text that fits in ``width`` columns."""
    while width_of(text) > width:
        text = text[: min(width, len(text) - 1)]
    return text


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    # Most texts, without importing rich, which takes 30 ms.
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
