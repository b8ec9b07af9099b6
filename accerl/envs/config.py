"""EnvConfig: how a game of Gymnasium's registry is shown to the networks."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.errors import UserError, require


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Wrappers, then grey, then size, then stacking; the defaults leave observations as they are.

    Games that are not Gymnasium's (presets, Atari in snake case) take the defaults only.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    wrappers: tuple[str, ...] = ()
    """innermost first: names in gymnasium.wrappers, or module:Class of your own, called with
    the environment alone"""
    grayscale: bool = False
    """whether RGB images become one channel"""
    resize: int = 0
    """height and width of images in pixels, by averaging areas; 0: as they are"""
    frame_stack: int = 1
    """newest observations that are shown together; after a reset the first fills them all"""

    def __post_init__(self) -> None:
        given = (self.wrappers,) if isinstance(self.wrappers, str) else tuple(self.wrappers)
        object.__setattr__(self, "wrappers", given)  # JSON knows no tuples
        named = all(isinstance(name, str) and name for name in given)
        require(named, "env: wrappers", "must be names", self.wrappers)
        require(self.frame_stack >= 1, "env: frame_stack", "must be at least 1", self.frame_stack)
        if self.resize and self.resize < 5:
            raise UserError(f"env: resize must be 0 or at least 5 pixels, got {self.resize}")


AS_IT_IS = EnvConfig()
