"""Low-rank factorisation: a large linear layer becomes two thin ones."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from accerl.errors import UserError
from accerl.networks import PolicyNet

OVERSAMPLING = 8
POWER_ITERATIONS = 2


def kept_rank(rows: int, columns: int, rank: float) -> int | None:
    """Return the rank a [rows, columns] layer gets, or None where two layers would cost more.

    Two thin layers hold r (rows + columns) weights, so r must stay below rows columns / (rows +
    columns) for a factorisation to pay.
    """
    kept = max(1, round(min(rows, columns) * rank))
    return kept if kept * (rows + columns) < rows * columns else None


def factorise(net: PolicyNet, rank: float) -> PolicyNet:
    """Return a copy of `net` with its hidden linear layers factorised, W ~ U_r S_r V_r^T.

    Layers where it would not save multiplications stay as they are; convolutions always do.

    Args:
        net: the network to factorise.
        rank: fraction of singular values kept, in (0, 1].

    Raises:
        UserError: `rank` is not allowed.
    """
    if not 0.0 < rank <= 1.0:
        raise UserError(
            f"low rank: rank is the fraction of singular values kept and must lie in (0, 1], "
            f"got {rank!r}"
        )
    copied = copy.deepcopy(net)
    modules: list[nn.Module] = []
    for module in copied.body:
        modules += _thin_layers(module, rank) if isinstance(module, nn.Linear) else [module]
    copied.body = nn.Sequential(*modules)
    return copied


def _thin_layers(layer: nn.Linear, rank: float) -> list[nn.Module]:
    """Return the two layers that replace `layer`; the second one carries the bias."""
    kept = kept_rank(layer.out_features, layer.in_features, rank)
    if kept is None:
        return [layer]
    weight = layer.weight.detach().float()
    u, s, v = truncated_svd(weight, kept)
    first = nn.Linear(layer.in_features, kept, bias=False)
    second = nn.Linear(kept, layer.out_features)
    root = s.sqrt()  # split evenly, so that both factors quantise equally well
    with torch.no_grad():
        first.weight.copy_(root[:, None] * v.T)
        second.weight.copy_(u * root)
        second.bias.copy_(layer.bias)
    return [first.to(weight.device), second.to(weight.device)]


def truncated_svd(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return U [m, r], S [r], V [n, r] by randomised subspace iteration (Halko et al., 2011).

    A full SVD of the paper's 3136 x 2048 layer takes seconds, more than a publication may. The
    sketch is drawn from a fixed seed: equal matrices give equal factors.
    """
    rows, columns = matrix.shape
    size = min(rank + OVERSAMPLING, rows, columns)
    generator = torch.Generator().manual_seed(0)
    sketch = torch.randn(columns, size, generator=generator).to(matrix.device)
    basis = torch.linalg.qr(matrix @ sketch).Q
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ basis).Q
        basis = torch.linalg.qr(matrix @ basis).Q
    u, s, vh = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ u[:, :rank], s[:rank], vh[:rank].T
