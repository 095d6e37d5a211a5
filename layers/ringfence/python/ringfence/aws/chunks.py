"""Splitting a request to what one call of a batch API takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], bytes_of: Callable[[T], int], *, max_items: int, max_bytes: int) -> Iterator[list[T]]:
    """Items in order, in lists of at most ``max_items`` and ``max_bytes``; an item that alone is larger goes by itself."""
    chunk: list[T] = []
    size = 0
    for item in items:
        item_bytes = bytes_of(item)
        if chunk and (len(chunk) == max_items or size + item_bytes > max_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item_bytes
    if chunk:
        yield chunk
