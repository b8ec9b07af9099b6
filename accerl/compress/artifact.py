"""Artifact: one compressed policy as bytes, on its way to the actors or into a checkpoint.

Nothing here is unpickled by Python: a header in JSON, and ONNX, safetensors or TorchScript behind
it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from accerl.errors import UserError
from accerl.spec import CompressionSpec

MAGIC = b"ACRL"
KINDS = ("onnx", "torch", "script")
_PREFIX = struct.Struct("<4sI")  # magic, length of the JSON header


@dataclass(frozen=True)
class Artifact:
    """A compressed policy that any process can turn into an engine."""

    spec: CompressionSpec
    version: int
    """learner updates when it was made"""
    kind: str
    """onnx (payload: see `onnx_payload`), torch (safetensors) or script (TorchScript, of a user's
    own network that is no chain of layers)"""
    payload: bytes | bytearray
    """not to be written to"""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"artifact kind must be one of {KINDS}, got {self.kind!r}")

    def to_bytes(self) -> bytes:
        """Return magic, header length, JSON header and payload, in this order."""
        header = json.dumps(
            {
                "spec": self.spec.to_json(),
                "version": self.version,
                "kind": self.kind,
                "payload_bytes": len(self.payload),
            }
        ).encode()
        return b"".join([_PREFIX.pack(MAGIC, len(header)), header, self.payload])

    @classmethod
    def from_bytes(cls, buffer: bytes | bytearray | memoryview) -> Artifact:
        """Read what `to_bytes` wrote; bytes behind it, as in a larger shared block, are ignored.

        Raises:
            UserError: the bytes are no artifact, or are cut off.
        """
        view = memoryview(buffer).cast("B")
        if len(view) < _PREFIX.size or bytes(view[:4]) != MAGIC:
            raise UserError(
                "artifact: these bytes are not a compressed policy; was the file mixed up?"
            )
        _, header_bytes = _PREFIX.unpack(view[: _PREFIX.size])
        start = _PREFIX.size + header_bytes
        try:
            if start > len(view):
                raise ValueError("the header is cut off")
            header = json.loads(bytes(view[_PREFIX.size : start]))
            spec = CompressionSpec.from_json(header["spec"])
            version, kind = int(header["version"]), str(header["kind"])
            end = start + int(header["payload_bytes"])
            if not start <= end <= len(view):
                raise ValueError(f"{len(view) - start} of {end - start} payload bytes are there")
            return cls(spec, version, kind, bytes(view[start:end]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"artifact: damaged ({error}); write it again") from error
