"""Several distillers on one student: what each adds, and what the student is.

One of them leads: it begins the network. When others help, it shows the weights w_0 that all go on
from, and from then on a student that K distillers share is

    w = w_0 + sum_k d_k,    d_k = K^-p sum (w after a piece of k's - w before it)

over the pieces that each has done since. At the beginning of a piece a distiller takes w as all
others have shown it, does a few updates with an Adam of its own, and shows its new d_k. Nobody
waits, each writes only what is its own, and a distiller that dies, hangs or is late loses nothing:
what it had shown still counts. A network that is begun anew has a higher `generation`, and weights
that others are to go on from have a higher `base`: what was added to older ones counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from accerl.compress.compressor import Compressor
from accerl.networks.graph_policy import Policy
from accerl.spec import CompressionSpec, StudentKey

SHARED_STEP = 1.0
"""p above: 0 adds up what all do, 1 averages it. Less than 1 is a larger step: four distillers on a
frozen Breakout policy bring Net2 from a random start, at a learning rate of 1e-3, to a KL of 0.17
(p = 0), 0.13 (0.5) and 0.21 (1) where one reaches 0.23; but from a fitted start, at Atari's 2e-3,
to 0.12 (0.5) and 0.04 (1) where one is at 0.04. Averaging never did harm."""
Entry = Mapping[str, Any]
"""a student as a distiller shows it: `student`, `generation`, `base`; of the one that leads also
`network`, `weights`, the `updates` it has done, and learner updates of the policy that it
`followed` last; of a student that is shared also `delta`"""
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class _Part:
    """What this distiller has added to a shared student."""

    mark: tuple[int, int]  # generation and base that it was added to
    delta: Weights
    weights: Weights | None = None  # w_0, if it leads

    def plus(self, before: Weights, after: Mapping[str, Tensor], scale: float) -> _Part:
        delta = {name: d + scale * (after[name] - before[name]) for name, d in self.delta.items()}
        return _Part(self.mark, delta, self.weights)


class StudentShares:
    """A distiller's students: those that it leads, and those that it helps with."""

    def __init__(self, compressor: Compressor, index: int, first_base: int = 0) -> None:
        """Distil with `compressor`, as distiller number `index`.

        Bases are counted from `first_base`: where what a predecessor has shown may be lost, a base
        that was used before must not come again.
        """
        self._compressor = compressor
        self._pool = compressor.pool
        self._index = index
        self._first_base = first_base
        self._parts: dict[StudentKey, _Part] = {}
        self._bases: dict[StudentKey, int] = {}

    def train(
        self,
        spec: CompressionSpec,
        policy: Policy,
        updates: int,
        version: int,
        *,
        leads: bool = True,
        sharers: int = 1,
        shown: Sequence[Entry] = (),
    ) -> int:
        """Do a piece of a student.

        Args:
            spec: names the student.
            policy: the learner's.
            updates: of the piece.
            version: learner updates of `policy`.
            leads: whether this distiller begins the student.
            sharers: how many distil it at the moment.
            shown: what the other distillers show.

        Returns:
            How many updates that took the time of, see `Compressor.distill`; none while who leads
            has not shown where to begin.
        """
        key = spec.student_key
        assert key is not None
        if leads:
            return self._lead(key, spec, policy, updates, version, sharers, shown)
        return self._help(key, policy, updates, version, sharers, shown)

    def _lead(
        self,
        key: StudentKey,
        spec: CompressionSpec,
        policy: Policy,
        updates: int,
        version: int,
        sharers: int,
        shown: Sequence[Entry],
    ) -> int:
        part = self._parts.get(key)
        if part is not None:
            own = {"student": key, **self._marked(part), "weights": part.weights}
            weights = _sum_of(key, [own, *shown], part.mark)
            self._pool.trainer(key).load_weights(weights)
            if sharers == 1:
                part = None
        elif sharers > 1 and key in self._pool:
            part = self._begin_part(key)
        before = None if part is None else _copied(self._pool.trainer(key).net)
        done = self._compressor.distill(policy, [spec], version, updates)
        if not done:
            return 0
        trainer = self._pool.trainer(key)
        if sharers == 1:
            self._parts.pop(key, None)
            self._next_base(key)
        elif part is None or before is None or part.mark[0] != trainer.generation:
            self._parts[key] = self._begin_part(key)
        else:
            scale = sharers**-SHARED_STEP
            self._parts[key] = part.plus(before, trainer.net.state_dict(), scale)
        return done

    def _begin_part(self, key: StudentKey) -> _Part:
        """Have everybody go on from the student as it is here."""
        trainer = self._pool.trainer(key)
        weights = _copied(trainer.net)
        return _Part((trainer.generation, self._next_base(key)), _zeros(weights), weights)

    def _next_base(self, key: StudentKey) -> int:
        self._bases[key] = base = self._bases.get(key, self._first_base) + 1
        return base

    def _help(
        self,
        key: StudentKey,
        policy: Policy,
        updates: int,
        version: int,
        sharers: int,
        shown: Sequence[Entry],
    ) -> int:
        leader = _leader([entry for entry in shown if StudentKey(*entry["student"]) == key])
        if leader is None or "delta" not in leader:
            return 0
        part, mark = self._parts.get(key), _mark(leader)
        if part is None or part.mark != mark:
            part = _Part(mark, _zeros(leader["weights"]))
        own = {"student": key, **self._marked(part)}
        weights = _sum_of(key, [*shown, own], mark)
        self._pool.adopt({**leader, "weights": weights}, policy, helper=self._index)
        trainer = self._pool.trainer(key)
        before = _copied(trainer.net)
        trainer.update(self._compressor.source(), policy, updates, version=version)
        scale = sharers**-SHARED_STEP
        self._parts[key] = part.plus(before, trainer.net.state_dict(), scale)
        return updates

    def entries(self, keys: Iterable[StudentKey]) -> list[dict[str, Any]]:
        """Return what others are to see of these students; it shares no memory with what moves."""
        found = []
        for key in keys:
            part = self._parts.get(key)
            if part is not None:
                entry = {"student": list(key), **self._marked(part)}
                if part.weights is not None:
                    entry = {**self._pool.send([key])[0], **entry, "weights": part.weights}
                found.append(entry)
            elif key in self._pool:
                (entry,) = self._pool.send([key])
                weights = _copied(self._pool.trainer(key).net)
                found.append(
                    {**entry, "base": self._bases.get(key, self._first_base), "weights": weights}
                )
        return found

    def _marked(self, part: _Part) -> dict[str, Any]:
        return {"generation": part.mark[0], "base": part.mark[1], "delta": part.delta}

    def recover(self, own: Iterable[Entry], policy: Policy) -> None:
        """Go on from what a predecessor has shown.

        Args:
            own: its entries.
            policy: of the learner's kind.
        """
        for entry in own:
            key, mark = StudentKey(*entry["student"]), _mark(entry)
            self._bases[key] = mark[1]
            if "weights" in entry:
                self._pool.adopt(entry, policy)
            if "delta" in entry:
                self._parts[key] = _Part(mark, entry["delta"], entry.get("weights"))

    def state_dict(self) -> dict[str, Any]:
        """Return what an exact resume needs besides the compressor's state."""
        return {
            "parts": [
                {"student": list(key), **self._marked(part), "weights": part.weights}
                for key, part in self._parts.items()
            ],
            "bases": [[*key, base] for key, base in self._bases.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._parts = {
            StudentKey(*entry["student"]): _Part(_mark(entry), entry["delta"], entry["weights"])
            for entry in state["parts"]
        }
        self._bases = {StudentKey(*key): base for *key, base in state["bases"]}


class Shown:
    """What the distillers of a run show: of each its newest entry of every student."""

    def __init__(self, distillers: int) -> None:
        self._shown: list[dict[StudentKey, Entry]] = [{} for _ in range(distillers)]

    def put(self, index: int, entries: Iterable[Entry]) -> None:
        """Note what a distiller shows now."""
        self._shown[index] |= {StudentKey(*entry["student"]): entry for entry in entries}

    def of(self, index: int) -> list[Entry]:
        """Return what one distiller shows."""
        return list(self._shown[index].values())

    def besides(self, index: int) -> list[Entry]:
        """Return what all others show."""
        others = (own.values() for which, own in enumerate(self._shown) if which != index)
        return [entry for own in others for entry in own]

    def students(self) -> list[dict[str, Any]]:
        """Return the students that they have made together, for `Compressor.take_students`."""
        by_key: dict[StudentKey, list[Entry]] = {}
        for own in self._shown:
            for key, entry in own.items():
                by_key.setdefault(key, []).append(entry)
        found = []
        for key, entries in by_key.items():
            leader = _leader(entries)
            if leader is not None:
                found.append({**leader, "weights": _sum_of(key, entries, _mark(leader))})
        return found

    def state_dict(self) -> list[list[Entry]]:
        """Return all of it."""
        return [list(own.values()) for own in self._shown]

    @classmethod
    def of_state(cls, state: Sequence[Sequence[Entry]]) -> Self:
        """Return what distillers showed, from a state returned by `state_dict`."""
        shown = cls(len(state))
        shown.load_state_dict(state)
        return shown

    def load_state_dict(self, state: Sequence[Sequence[Entry]]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._shown = [{} for _ in self._shown]
        for index, entries in enumerate(state):
            self.put(index, entries)


def _mark(entry: Entry) -> tuple[int, int]:
    return int(entry["generation"]), int(entry["base"])


def _leader(entries: Iterable[Entry]) -> Entry | None:
    """Return the newest entry of who leads, of one student's."""
    return max((entry for entry in entries if "weights" in entry), key=_mark, default=None)


def _sum_of(key: StudentKey, entries: Iterable[Entry], mark: tuple[int, int]) -> Weights:
    """Return a student's w_0 of that mark, plus all that was added to it."""
    valid = [e for e in entries if StudentKey(*e["student"]) == key and _mark(e) == mark]
    weights = dict(next(entry["weights"] for entry in valid if "weights" in entry))
    for entry in valid:
        for name, delta in entry.get("delta", {}).items():
            weights[name] = weights[name] + delta
    return weights


def _copied(net: Policy) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def _zeros(weights: Mapping[str, Tensor]) -> Weights:
    return {n: w.new_zeros(w.shape) for n, w in weights.items() if w.is_floating_point()}
