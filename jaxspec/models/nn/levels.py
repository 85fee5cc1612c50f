"""What the configs of convolutional autoencoders have alike: levels, each of which but the last halves the image."""

from __future__ import annotations


class Levels:
  """A base of dataclasses with the fields ``base_channels`` and ``multipliers``, and ``num_groups`` of group norms."""

  base_channels: int
  multipliers: tuple[int, ...]
  num_groups: int

  @property
  def channels(self) -> tuple[int, ...]:
    """Channels of each level, from the largest image to the smallest."""
    return tuple(self.base_channels * multiplier for multiplier in self.multipliers)

  @property
  def factor(self) -> int:
    """Pixels along one side of one position of the encoder."""
    return 2 ** (len(self.multipliers) - 1)

  def check_levels(self, *positive: str) -> None:
    """Checks the fields of the levels, and that further ones are at least 1.

    Args:
      positive: their names; ``num_groups`` among them must divide ``base_channels``.
    Raises:
      ValueError: in one line.
    """
    if not self.multipliers or min(self.multipliers) < 1:
      raise ValueError(f"Must have one positive multiplier per level, we instead got {self.multipliers}")
    for name in ("base_channels", *positive):
      if getattr(self, name) < 1:
        raise ValueError(f"Must have {name} of at least 1, we instead got {getattr(self, name)}")
    if "num_groups" in positive and self.base_channels % self.num_groups:
      raise ValueError(
        f"Must have base_channels divisible by num_groups, we instead got {self.base_channels} and {self.num_groups}"
      )
