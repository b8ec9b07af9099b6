"""Where channels go that are concatenated, in a graph of Torch-Pruning's.

Places are what it hands from layer to layer: `idx` in the layer at hand, `root_idx` in the one that
is pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

Mapping = Callable[[Any], Any]
"""from places of one node to places of another"""


def map_concatenations(graph: Any) -> None:
    """Say where the channels of each concatenated image or vector go.

    Torch-Pruning does so itself, unless something is flattened before or afterwards: then it counts
    what is flattened and concludes that something other than channels was concatenated.
    """
    for node in list(graph.module2node.values()):
        sizes = getattr(node.module, "concat_sizes", None)
        if not sizes or None in sizes or getattr(node.grad_fn, "_saved_dim", None) != 1:
            continue
        flat = [_flattening(given) for given in node.inputs]
        wide = [size * (found[1] if found else 1) for size, found in zip(sizes, flat, strict=True)]
        if any(flat) and sum(wide) == _read_width(node):
            sizes = wide
            for reshape, spots in filter(None, flat):
                _map_flattening(reshape, spots)
        start = 0
        for given, size in zip(node.inputs, sizes, strict=True):
            _map(node, given, 1, _taken(start, size))
            _map(given, node, 1, _put(start))
            start += size


def before(node: Any) -> Iterator[Any]:
    """Return all that feeds a node, the nearest first."""
    for given in node.inputs:
        yield given
        yield from before(given)


def has_weights(node: Any) -> bool:
    """Whether it is a layer that learns something."""
    return any(True for _ in node.module.parameters())


def _flattening(node: Any) -> tuple[Any, int] | None:
    """Return what flattened an image on its way to a node, and the pixels of each channel."""
    for each in (node, *before(node)):
        sizes = getattr(each.grad_fn, "_saved_self_sym_sizes", ())
        if "View" in type(each.grad_fn).__name__ or "Reshape" in type(each.grad_fn).__name__:
            return (each, int(sizes[2]) * int(sizes[3])) if len(sizes) == 4 else None
        if len(each.inputs) != 1 or has_weights(each):
            return None
    return None


def _read_width(node: Any) -> int | None:
    """Return how many numbers the first linear layer reads behind a node."""
    for each in node.outputs:
        if isinstance(each.module, nn.Linear):
            return each.module.in_features
        if not has_weights(each) and (width := _read_width(each)) is not None:
            return width
    return None


def _map_flattening(reshape: Any, pixels: int) -> None:
    """Say where the channels of an image go that is flattened."""
    from torch_pruning.ops import OPTYPE

    reshape.type = OPTYPE.ELEMENTWISE  # or it would be mapped anew for every group
    (given,) = reshape.inputs
    for here, there, mapping in (
        (reshape, given, _gathered(pixels)),
        (given, reshape, _spread(pixels)),
    ):
        for edge in here.dependencies:
            if edge.target is there:
                edge.index_mapping[0] = mapping


def _map(here: Any, there: Any, slot: int, mapping: Mapping) -> None:
    """Give the first edge between two nodes that has none a mapping."""
    edges = [edge for edge in here.dependencies if edge.target is there]
    unmapped = [edge for edge in edges if edge.index_mapping[slot] is None]
    if unmapped:
        unmapped[0].index_mapping[slot] = mapping


def _taken(start: int, size: int) -> Mapping:
    """Return what maps places in a concatenation to places in one of its parts."""

    def mapping(places: Any) -> Any:
        inside = [place for place in places if start <= place.idx < start + size]
        return [place._replace(idx=place.idx - start) for place in inside]

    return mapping


def _put(start: int) -> Mapping:
    """Return what maps places in a part to places in the concatenation."""
    return lambda places: [place._replace(idx=place.idx + start) for place in places]


def _spread(pixels: int) -> Mapping:
    """Return what maps channels to all their numbers in a vector."""
    return lambda places: [
        place._replace(idx=place.idx * pixels + pixel)
        for place in places
        for pixel in range(pixels)
    ]


def _gathered(pixels: int) -> Mapping:
    """Return what maps numbers in a vector to the channels that they are of."""
    return lambda places: list({place._replace(idx=place.idx // pixels) for place in places})
