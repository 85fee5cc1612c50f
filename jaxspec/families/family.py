"""Interface of a family of networks: its prompts, its tokens, and the decoding of tokens.

`jaxspec.models.registry.FamilySpec.make_family` makes a family from a loaded target and its parts (an image tokenizer, a
vocabulary). `jaxspec.load_pipeline` uses this interface only, so a new family needs no other change.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core import precision
from jaxspec.core.network import Network
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import HostArray, Key, PyTree
from jaxspec.errors import CheckpointError
from jaxspec.io import checkpoints, hub
from jaxspec.io.model_folders import model_folder
from jaxspec.methods.method import SAME_FAMILY
from jaxspec.models import registry
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.sampling import SAMPLING_TYPES, AnySampling

# Fields of a head's config that may differ from its target's.
_OWN_OF_A_HEAD = ("norm_eps", "dtype", "num_layers", "levels", "num_places", "num_rows")


class Encoded(NamedTuple):
  """Prompts in the target's form."""

  condition: PyTree  # a type of `jaxspec.models.conditions`, numpy leaves [B, ...]
  captions: list[str]  # one text per row, for display
  warnings: Sequence[str] = ()  # for the user, one line each


class FamilyParts:
  """Inputs of a family besides the target: the ``parts`` of a bundle, or arguments of `load_pipeline`.

  Folders and files are relative to a folder; a loaded `Network` is also a part.

  Args:
    owner: a folder, named in messages.
    values: parts by name; None for a missing part.
    folder: base of relative paths; ``owner`` by default.
  """

  def __init__(self, owner: str | os.PathLike, values: Mapping[str, Any], folder: str | os.PathLike | None = None):
    self.owner = Path(owner)
    self._folder = self.owner if folder is None else Path(folder)
    self._values = {name: value for name, value in values.items() if value is not None}
    self._asked: set[str] = set()

  def value(self, name: str, default: Any = None) -> Any:
    """The part as given, or ``default``."""
    self._asked.add(name)
    return self._values.get(name, default)

  def file(self, name: str) -> Path:
    """The path of a part.

    Raises:
      CheckpointError: if it is missing or not a path.
    """
    found = self.value(name)
    if found is None:
      hint = f"jaxspec bundle --part {name}=DIR adds it"
      raise CheckpointError(f"Must have a part {name!r} for {self.owner}, we instead got none: {hint}")
    if not isinstance(found, (str, os.PathLike)) or found == "":
      raise CheckpointError(f"Must have a path as part {name!r} of {self.owner}, we instead got {found!r}")
    return Path(found) if hub.is_reference(found) else self._folder / found

  def folder(self, name: str) -> Path:
    """The checkpoint folder of a network, converted if it holds released weights.

    Raises:
      CheckpointError: if the part is missing or cannot be read.
      LinkError: if it is at the hub, out of reach.
    """
    found = self.file(name)
    folder = model_folder(found)
    if hub.is_reference(found):  # looked up once
      self._values[name] = folder.absolute()
    return folder

  def family_name(self, name: str) -> str:
    """The family name of a network; only its ``config.json`` is read.

    Raises:
      CheckpointError: if it is missing or not a network.
    """
    value = self.value(name)
    return value.family_name if isinstance(value, Network) else checkpoints.read_config(self.folder(name))["family"]

  def network(self, name: str, *, dtype: Any = jnp.float32, weights: bool = True) -> Network:
    """A part as a network, loaded once, by default in float32: encoders and decoders run once per image.

    Args:
      dtype, weights: as for `jaxspec.io.checkpoints.load`.
    Raises:
      CheckpointError: if it is missing or cannot be loaded.
    """
    if not isinstance(self.value(name), Network):
      self._values[name] = checkpoints.load(self.folder(name), dtype=dtype, weights=weights)
    return self._values[name]

  def check_all_read(self) -> None:
    """Raises a CheckpointError for a part that the family did not read."""
    if unread := sorted(self._values.keys() - self._asked):
      known = ", ".join(sorted(self._asked)) or "none"
      raise CheckpointError(f"Must have parts that {self.owner} reads ({known}), we instead got {', '.join(unread)}")


class Family:
  """Base class of families, with defaults for optional methods.

  Class attributes:
    condition_type: return type of `encode`, a type of `jaxspec.models.conditions`.
    noun: kind of result, ``image`` or ``text``.
    fit_fields: config fields that must be equal in draft and target.
    sends_text: whether clients send the text of a prompt and the server encodes it; otherwise they send ids or a class.

  Attributes:
    target: the loaded target.
  """

  condition_type: ClassVar[type]
  noun: ClassVar[str] = "image"
  fit_fields: ClassVar[tuple[str, ...]] = ()
  sends_text: ClassVar[bool] = False

  target: Network

  def __repr__(self) -> str:
    return f"<{type(self).__name__}: {self.noun}s of {self.space.noun}, {self.target.path}>"

  @property
  def example_prompt(self) -> Any:
    """A prompt that every network of the family can encode: class 0, or a text."""
    return 0 if self.condition_type in (ClassLabels, OrderedLabels) else "a cat"

  @functools.cached_property
  def space(self) -> TokenSpace:
    """The tokens of a row."""
    raise NotImplementedError

  @property
  def end_token(self) -> tuple[int, ...] | None:
    """Ids that end a row, None if all rows have the same number of tokens."""
    return None

  @property
  def fewest_slots(self) -> int:
    """The least number of slots of a `jaxspec.models.conditions.Prompt`."""
    return 1

  def row_tokens(self, sampling: AnySampling) -> int | None:
    """Tokens of a row: from `space`, unless the number depends on the settings."""
    del sampling
    return self.space.num_tokens

  def default_length(self, sampling: AnySampling) -> int:
    """Default number of tokens to draw."""
    return self.row_tokens(sampling) or 64

  @property
  def sampling_type(self) -> type:
    """The class of the sampling settings."""
    return SAMPLING_TYPES[self.space.kind]

  @property
  def draft_families(self) -> tuple[str, ...]:
    """Names of the families of drafts for methods with `SAME_FAMILY`."""
    return (self.target.family_name,)

  def published_sampling(self) -> dict[str, Any]:
    """The authors' settings for released weights, fields of `sampling_type`; a bundle's settings take precedence."""
    return {}

  def resolve_sampling(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `sampling_type`: ``given`` ones, and those of training for the rest."""
    return {**trained, **given}

  def matmul_precision(self, dtype: str) -> str:
    """The preferred precision of products on this machine, one of `jaxspec.core.precision.PRECISIONS`."""
    return precision.preferred(dtype)

  def network(self, loaded: Network, name: str) -> Network:
    """A loaded target or draft in the form for methods."""
    return dataclasses.replace(loaded, name=name)

  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """Prompts of ``B`` rows.

    Args:
      captions: texts of the rows for display; the prompts by default.
    Raises:
      ValueError: naming the first prompt that cannot be encoded.
    """
    raise NotImplementedError

  def release(self) -> None:
    """Frees large weights of `encode`, which loads them again at the next call."""

  def prepare(self, keys: Key, condition: PyTree) -> PyTree:
    """The initial condition of a decode, inside the compiled program.

    Args:
      keys: ``[B]`` row keys of the decode; only streams that no decode uses may be consumed.
      condition: as `encode` returned it.
    """
    del keys
    return condition

  def finish(
    self, result: DecodeResult, condition: PyTree, keys: Key, params: SpecParams, sampling: AnySampling
  ) -> DecodeResult:
    """Converts a result for `decode`, inside the compiled program.

    Args:
      result: of the decode, in generation order.
      condition: as `prepare` returned it.
      keys: ``[B]`` row keys of the decode; only streams that no decode uses may be consumed.
      params: parameters of the decode.
    """
    del condition, keys, params, sampling
    return result

  def decode(
    self,
    tokens: HostArray,
    *,
    lengths: HostArray | None = None,
    condition: PyTree | None = None,
    sampling: AnySampling | None = None,
  ) -> np.ndarray | list[str]:
    """Images or texts of tokens.

    Args:
      tokens: ``[B, N]`` int32 or ``[B, N, C]`` float32, as `finish` returned them.
      lengths: ``[B]`` int32, valid tokens of each row; all by default.
      condition: as `encode` returned it; the beginning of texts.
      sampling: the settings of the decode, if the result depends on them.
    Returns:
      Images ``[B, H, W, 3]`` uint8, or ``B`` texts.
    """
    raise NotImplementedError

  def family_names(self, draft_family: str | None) -> tuple[str, ...]:
    """Names of the families of drafts for this `Method.draft_family`."""
    if draft_family is None:
      return ()
    return self.draft_families if draft_family == SAME_FAMILY else (draft_family,)

  def check_fit(self, draft: Network, draft_family: str | None) -> None:
    """Checks that a network can draft for the target.

    Args:
      draft_family: a method's family of drafts: `SAME_FAMILY`, or a name in the registry.
    Raises:
      ValueError: naming the draft and the mismatch.
    """
    wanted = self.family_names(draft_family)
    if draft.family_name not in wanted:
      names = " or ".join(wanted)
      raise ValueError(f"Must have a checkpoint of the family {names} as draft, {draft.path} holds a {draft.family_name}")
    head_of = registry.FAMILIES[draft.family_name].head_of
    if head_of is None:
      for name in self.fit_fields:
        check_equal(draft, name, getattr(draft.config, name, None), getattr(self.target.config, name))
      return
    try:
      fitting = head_of(self.target.config)
    except ValueError as error:
      raise ValueError(f"The draft {draft.path} does not fit the target: {error}") from error
    for name in fitting.__dataclass_fields__:
      if name not in _OWN_OF_A_HEAD:
        check_equal(draft, name, getattr(draft.config, name), getattr(fitting, name))

  def check_length(self, network: Network, condition: PyTree, max_len: int) -> list[str]:
    """Warnings about rows longer than a network's training length.

    Args:
      condition: as `encode` returned it.
    Raises:
      ValueError: if ``max_len`` tokens cannot be decoded.
    """
    del condition
    num_tokens = self.space.num_tokens
    if num_tokens is not None and max_len > num_tokens:
      raise ValueError(f"Must have max_len of at most the {num_tokens} tokens of an {self.noun}, we instead got {max_len}")
    return []


def check_equal(draft: Network, name: str, theirs: Any, ours: Any) -> None:
  """Raises a ValueError if a draft's field differs from its target's."""
  if theirs != ours:
    raise ValueError(f"The draft {draft.path} does not fit the target: {name} {theirs} instead of {ours}")


def check_whole(tokens: HostArray, lengths: HostArray | None, num_tokens: int) -> None:
  """Raises a ValueError for ``tokens [B, N, ...]``, of which ``lengths [B]`` are valid, with fewer or more than
  ``num_tokens``."""
  found = tokens.shape[1] if lengths is None else min(tokens.shape[1], int(np.min(lengths)))
  if found < num_tokens or tokens.shape[1] != num_tokens:
    raise ValueError(f"Must have all {num_tokens} tokens of an image, we instead got {found}")


def check_captions(captions: Sequence[str] | None, default: list[str], of: str) -> list[str]:
  """The captions of ``len(default)`` rows, or the default ones.

  Raises:
    ValueError: for another number of captions, or one that is not valid UTF-8.
  """
  if captions is None:
    return default
  captions = check_texts(captions, "caption")
  if len(captions) != len(default):
    raise ValueError(f"Must have as many captions as {of}, we instead got {len(captions)} for {len(default)}")
  return captions


def check_texts(texts: Any, noun: str) -> list[str]:
  """A list of texts, from a string, a list, an array or an iterator.

  Raises:
    ValueError: if there is none, or for the first that is not a string or not valid UTF-8, such as undecodable bytes of a
      terminal.
  """
  if isinstance(texts, str):
    texts = [texts]
  elif isinstance(texts, Iterable) and not isinstance(texts, (bytes, Mapping)):
    texts = list(np.ravel(texts) if isinstance(texts, np.ndarray) else texts)
  if not isinstance(texts, list) or not texts:
    raise ValueError(f"Must have at least one {noun}, we instead got {texts!r}")
  for number, text in enumerate(texts, 1):
    if not isinstance(text, str):
      raise ValueError(f"Must have text as every {noun}, {noun} {number} is {text!r}")
    try:
      text.encode()
    except UnicodeEncodeError as error:
      raise ValueError(f"Must have every {noun} in UTF-8, {noun} {number} is {text!a}") from error
  return list(texts)
