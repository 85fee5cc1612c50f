"""Objects that hold loaded networks: copies of a result share them, and they are not pickled."""

from __future__ import annotations

from typing import Any, NoReturn, Self


class Shared:
  """A frozen object with networks and compiled programs, which is its own copy."""

  def __copy__(self) -> Self:
    return self

  def __deepcopy__(self, memo: dict[int, Any]) -> Self:
    return self

  def __reduce__(self) -> NoReturn:
    """Refuses to be pickled.

    Raises:
      TypeError: always, in one line.
    """
    raise TypeError(
      f"Must have a value without loaded networks to pickle it, we instead got a {type(self).__name__}: "
      "of a result, take .tokens, .images, .texts or .result"
    )
