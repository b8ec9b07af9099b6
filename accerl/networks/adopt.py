"""A user's own module as a PolicyNet, so that everything that compresses can work on it.

What can be pruned, factorised and made of integers is a chain: convolutions and linear layers, each
with a ReLU behind it, then one linear head for logits and one for values. The module's forward is
read with torch.fx; batch norms fold into the layer before them, dropout goes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from accerl.errors import UserError, first_line
from accerl.networks.graph_policy import GraphPolicy, Policy, own_copy, random_states
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import Architecture, ConvSpec, PolicyNet, conv_spec, is_plain
from accerl.networks.probe import PROBED_STATES, TOLERANCE, make_lazy_weights

_RELU = {nn.ReLU, torch.relu, functional.relu, "relu", "relu_"}
_FLATTEN = {nn.Flatten, torch.flatten, "flatten", "reshape", "view"}
_SAME = {nn.Dropout, nn.Dropout2d, nn.Identity, functional.dropout, "contiguous", "float", "to"}
_SHAPE = {getattr, "size", "dim"}
_SQUEEZE = {torch.squeeze, "squeeze", "flatten", "view", "reshape", operator.getitem}
_LAYERS = (nn.Conv2d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
KNOWN = "Conv2d, Linear, BatchNorm, ReLU, Flatten and Dropout"


def as_policy(module: nn.Module, observation: ObservationSpec, name: str | None = None) -> Policy:
    """Return what `adopt` makes of `module`, or a GraphPolicy that remembers why that refused it.

    Args:
        module: takes states [B, *shape] as recorded and returns logits [B, A] and values, [B] or
            [B, 1].
        observation: of the states.
        name: what `make_network` makes it of.

    Raises:
        UserError: it cannot act on such states, or returns something else.
    """
    if isinstance(module, GraphPolicy):
        return module
    for weight in module.parameters():
        if weight.dtype in (torch.bfloat16, torch.float16):
            kind = str(weight.dtype).removeprefix("torch.")
            raise UserError(
                f"{type(module).__name__}: its weights are {kind}, in which nothing can be "
                "learned; call .float() on it (--set learner.precision=bf16 computes in bfloat16)"
            )
    make_lazy_weights(module, observation)
    try:
        return adopt(module, observation)
    except UserError as reason:
        return GraphPolicy(module, observation, name=name, reason=reason)


def require_states_of(policy: Policy, observation: ObservationSpec) -> None:
    """Refuse states of a shape or type that `policy`, which came as one, does not take.

    Raises:
        UserError: with both.
    """
    own = policy.observation
    if (own.shape, own.dtype) != (observation.shape, observation.dtype):
        raise UserError(
            f"{type(policy).__name__}: it takes states of {own.dtype} {list(own.shape)}, and is "
            f"given {observation.dtype} {list(observation.shape)}"
        )


def require_chain(net: Policy) -> PolicyNet:
    """Return `net` if it is a chain of layers.

    Raises:
        UserError: it is none; it says why.
    """
    if isinstance(net, GraphPolicy):
        given = net.reason or f"{type(net.module).__name__} is no chain of layers"
        raise UserError(str(given)) from net.reason
    return net


def adopt(module: nn.Module, observation: ObservationSpec) -> PolicyNet:
    """Return a PolicyNet that computes what `module` does in evaluation mode.

    Args:
        module: takes states [B, *shape] as recorded and returns logits [B, A] and values, [B] or
            [B, 1]. A PolicyNet is returned as it is.
        observation: of the states. What `module` does to them first (casting, subtracting a whole
            number, dividing) takes the place of its centre and unit.

    Raises:
        UserError: it is not such a chain; the message names what stands in the way.
    """
    if isinstance(module, PolicyNet):
        return module
    reader = _Reader(module)
    layers, unit, centre = reader.body(observation)
    if observation.dtype == "uint8":
        observation = replace(observation, centre=centre, unit=unit)
    elif (unit, centre) != (1.0, 0):
        raise reader.refusal("its input is scaled", "scale float observations in the environment")
    heads = reader.heads()
    convs = tuple(_conv_spec(reader, layer) for layer in layers if isinstance(layer, nn.Conv2d))
    hidden = tuple(layer.out_features for layer in layers if isinstance(layer, nn.Linear))
    if convs and len(observation.shape) != 3:
        raise reader.refusal(
            f"it convolves, and states have the shape {observation.shape}", "give images [C, H, W]"
        )
    try:
        with torch.device("meta"):
            net = PolicyNet(Architecture(convs, hidden), observation, heads[0].out_features)
    except RuntimeError as error:  # sizes below zero
        raise reader.refusal(
            f"its convolutions are too large for images of {observation.shape}", first_line(error)
        ) from error
    net = net.to_empty(device=heads[0].weight.device)
    own = [m for m in (*net.body, net.policy_head, net.value_head) if isinstance(m, _LAYERS)]
    with torch.no_grad():
        for mine, theirs in zip(own, (*layers, *heads), strict=True):
            if mine.weight.shape != theirs.weight.shape:
                raise reader.refusal(
                    f"a layer has weights {tuple(theirs.weight.shape)} where states of "
                    f"{observation.shape} need {tuple(mine.weight.shape)}",
                    "give states of the shape that it was made for",
                )
            mine.weight.copy_(theirs.weight)
            assert mine.bias is not None
            mine.bias.copy_(torch.zeros(()) if theirs.bias is None else theirs.bias)
    reader.compare(net)
    return net


class _Reader:
    """Walks along a module's graph from its input to its heads."""

    def __init__(self, module: nn.Module) -> None:
        self.name = type(module).__name__
        self._modules = dict(own_copy(module).eval().named_modules())
        try:
            self._graph = fx.symbolic_trace(self._modules[""]).graph
        except Exception as error:  # whatever a user's forward does with what is no tensor
            first = first_line(error)
            raise self.refusal("its forward cannot be traced", first) from error
        self._graph.eliminate_dead_code()
        (output,) = [node for node in self._graph.nodes if node.op == "output"]
        self._results = output.args[0]
        if not isinstance(self._results, tuple | list) or len(self._results) != 2:
            raise self.refusal("its forward does not return two tensors", "return logits, values")
        self._check_weights()
        inputs = [node for node in self._graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise self.refusal(f"its forward takes {len(inputs)} arguments", "one is needed")
        self._node: fx.Node = inputs[0]
        self._before: fx.Node = inputs[0]

    def refusal(self, what: str, hint: str) -> UserError:
        return UserError(f"{self.name} cannot be compressed: {what}; {hint}")

    def _check_weights(self) -> None:
        """Refuse weights that would learn in another way, were they copied into plain layers."""
        called = [str(node.target) for node in self._graph.nodes if node.op == "call_module"]
        layers = {name: self._modules[name] for name in called}
        weights = [weight for name in called for weight in layers[name].parameters()]
        if len(set(map(id, weights))) < len(weights):
            raise self.refusal("layers share weights", "give each its own, and call it once")
        for name, layer in layers.items():
            own = {weight for weight, _ in layer.named_parameters()}
            if isinstance(layer, _LAYERS) and not {"weight"} <= own <= {"weight", "bias"}:
                raise self.refusal(f"{name!r} is parametrised", "use plain layers")
        # Where all are frozen nothing learns: then only the numbers matter.
        learns = [weight.requires_grad for weight in weights]
        if any(learns) and not all(learns):
            raise self.refusal("some of its weights are frozen", "let all of them learn")
        self._learning = [weight for weight in weights if weight.requires_grad]

    def body(self, observation: ObservationSpec) -> tuple[list[Any], float, int]:
        """Return the hidden layers, and unit and centre of what happens to the input."""
        layers: list[Any] = []
        unit, centre, open_layer = 1.0, 0, False  # whether the last layer waits for its ReLU
        while len(users := self._users(self._node)) == 1:
            self._before, self._node = self._node, users[0]
            kind, module = self._kind(self._node)
            if module is not None and isinstance(module, _LAYERS):
                if open_layer:
                    raise self.refusal(f"no ReLU follows {layers[-1]}", "put one behind it")
                layers.append(module)
                open_layer = True
            elif module is not None and isinstance(module, _NORMS):
                if not open_layer:
                    raise self.refusal(
                        f"{self._node.target} has no layer in front of it to fold into",
                        "put batch norms between a layer and its ReLU",
                    )
                layers[-1] = self._folded(layers[-1], module)
            elif kind in _RELU and (layers or (observation.dtype == "uint8" and centre == 0)):
                open_layer = False
            elif kind in _RELU:
                raise self.refusal("a ReLU changes its input", "begin with a layer")
            elif kind in _SAME:
                continue
            elif kind in _FLATTEN:
                self._check_flatten(self._node)
            elif not layers and observation.dtype == "uint8":
                unit, centre = self._scale(self._node, kind, unit, centre)
            else:
                raise self._unknown(self._node)
        if open_layer:  # the last layer without a ReLU is one of the heads
            raise self.refusal("its two heads share a layer without ReLU", "put one behind it")
        return layers, unit, centre

    @torch.no_grad()
    def compare(self, net: PolicyNet) -> None:
        """Refuse `net` if it acts unlike the module: something was read that is not understood."""
        states = random_states(net.observation, PROBED_STATES, net.device)
        try:
            with torch.enable_grad():
                wanted = self._modules[""](states)
        except Exception as error:  # anything may be wrong in a user's own forward
            raise self.refusal(f"it cannot act on {net.observation}", first_line(error)) from error
        for name, mine, theirs in zip(("logits", "values"), net(states), wanted, strict=True):
            theirs = (theirs.flatten() if name == "values" else theirs).float()
            alike = theirs.shape == mine.shape and torch.allclose(
                mine, theirs, atol=TOLERANCE * float(theirs.abs().max()), equal_nan=True
            )
            if not alike:
                raise self.refusal(
                    f"its {name} are not those of the chain of layers that was read in it",
                    f"write one of {KNOWN} alone",
                )
        self._check_gradients(wanted)

    @torch.enable_grad()
    def _check_gradients(self, outputs: Sequence[Tensor]) -> None:
        """Refuse a forward that keeps some weights from learning: its graph does not say so."""
        if not self._learning:
            return
        total = outputs[0].sum() + outputs[1].sum()
        slopes: Sequence[Tensor | None] = [None]
        if total.requires_grad:
            slopes = torch.autograd.grad(total, self._learning, allow_unused=True)
        if any(slope is None for slope in slopes):
            raise self.refusal("its forward keeps some weights from learning", "let all of them")

    def heads(self) -> tuple[nn.Linear, nn.Linear]:
        """Return the linear layers of logits and values, which both read what the body puts out."""
        found = [self._head(result) for result in self._results]
        if set(self._users(self._node)) != {node for node, _ in found}:
            readers = " and ".join(f"'{node.name}'" for node in self._users(self._node))
            raise self.refusal(
                f"what '{self._node.name}' puts out is read by {readers}: a residual connection, "
                "or two branches",
                "units that are added up cannot be removed or rounded one by one; write a plain "
                "chain, or act with it as a student in torch (graph 'torchscript')",
            )
        policy, value = found[0][1], found[1][1]
        if value.out_features != 1:
            raise self.refusal(f"it returns {value.out_features} values per state", "return one")
        return policy, value

    def _head(self, node: Any) -> tuple[fx.Node, nn.Linear]:
        while isinstance(node, fx.Node):
            kind, module = self._kind(node)
            if isinstance(module, nn.Linear):
                return node, module
            if kind not in _SQUEEZE:
                break
            node = node.args[0]
        raise self.refusal(f"{node} is not a linear head", "end in two linear layers")

    def _users(self, node: fx.Node) -> list[fx.Node]:
        """Return what reads the numbers of `node`, not only its shape."""
        return [user for user in node.users if self._kind(user)[0] not in _SHAPE]

    def _kind(self, node: fx.Node) -> tuple[Any, nn.Module | None]:
        """Return what a node does: the class of its module, its function or its method's name."""
        if node.op == "call_module":
            module = self._modules[str(node.target)]
            return type(module), module
        return node.target, None

    def _folded(self, layer: nn.Module, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
        """Return a layer that computes what it and the batch norm behind it do."""
        if norm.running_mean is None:
            raise self.refusal(
                f"{norm} has no statistics of its own", "let it track them (track_running_stats)"
            )
        if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            return fuse_conv_bn_eval(layer, norm)
        if isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
            return fuse_linear_bn_eval(layer, norm)
        raise self.refusal(
            f"{norm} does not fold into {layer}", "put batch norms directly behind their layer"
        )

    def _check_flatten(self, node: fx.Node) -> None:
        kind, module = self._kind(node)
        first = module.start_dim if isinstance(module, nn.Flatten) else None
        if kind in (torch.flatten, "flatten"):
            first = node.kwargs.get("start_dim", node.args[1] if len(node.args) > 1 else 0)
        if kind in ("view", "reshape"):
            first = 1 if len(node.args) == 3 and node.args[2] == -1 else None
        if first != 1:
            raise self.refusal(
                f"{node.name!r} does not flatten each state by itself", "use Flatten"
            )

    def _scale(self, node: fx.Node, kind: Any, unit: float, centre: int) -> tuple[float, int]:
        """Return unit and centre after an operation on the input."""
        number = node.args[1] if len(node.args) > 1 else None
        known: dict[Any, Callable[[float], tuple[float, float]]] = {
            "div": lambda by: (unit * by, centre),
            "mul": lambda by: (unit / by, centre),
            "sub": lambda by: (unit, centre + by * unit),
            "add": lambda by: (unit, centre - by * unit),
        }
        name = getattr(kind, "__name__", str(kind)).strip("_").removeprefix("true")
        if name not in known or not isinstance(number, int | float) or not number:
            raise self._unknown(node)
        unit, moved = known[name](number)
        if moved != round(moved) or not 0 <= moved <= 255 or unit <= 0.0:
            raise self.refusal(
                f"it subtracts {moved:g} from pixels and divides by {unit:g}",
                "subtract a whole number of 0 to 255 and divide by a positive one",
            )
        return unit, round(moved)

    def _unknown(self, node: fx.Node) -> UserError:
        kind, module = self._kind(node)
        name = type(module).__name__ if module is not None else getattr(kind, "__name__", kind)
        reason = f"{name!r} ({node.name}) is not part of a chain of layers with ReLUs"
        if any(isinstance(arg, fx.Node) and arg is not self._before for arg in node.args):
            reason = f"{name!r} ({node.name}) joins two branches, as residual connections do"
        return self.refusal(reason, f"what can be compressed consists of {KNOWN}")


def _conv_spec(reader: _Reader, conv: nn.Conv2d) -> ConvSpec:
    if not is_plain(conv):
        raise reader.refusal(
            f"{conv} is not a plain square convolution",
            "use equal sides, groups=1, dilation=1 and padding of zeros given as a number",
        )
    return conv_spec(conv)
