"""Loaded networks: their methods, their default settings, and the pure function of a decode."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from jaxspec.core import mesh as meshes
from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.core.options import check_length, options_of, suggestion
from jaxspec.core.precision import narrow, precision_context
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.types import Array, PyTree
from jaxspec.errors import OptionError, PromptError, values_as
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions
from jaxspec.io.bundle import Defaults
from jaxspec.methods import METHODS, get_method, make_method
from jaxspec.methods.method import DraftingMethod, Method
from jaxspec.run.decoder import Decoder
from jaxspec.run.draft_networks import Drafts
from jaxspec.run.programs import Programs
from jaxspec.run.shared import Shared
from jaxspec.sampling import AnySampling

# (parameters, key data [B, 2] uint32, condition of B rows) -> DecodeResult
Program = Callable[[SpecParams, Array, PyTree], DecodeResult]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LoadedNetworks(Shared):
  """Networks that generate together, and their default settings.

  Attributes:
    name: name in messages.
    family: the target's family.
    target: the target network.
    drafts: draft networks by name.
    defaults: the bundle's default settings.
    dtype: compute dtype of target and drafts.
    matmul_precision: precision of products in every decode; None: JAX's setting.
    parts: inputs of the family, for `alone`.
    mesh: devices that share every decode (`jaxspec.core.mesh`); None is one device.
    programs: compiled decodes.
  """

  name: str
  family: Family
  target: Network
  drafts: Drafts
  defaults: Defaults = Defaults()
  dtype: str = "float32"
  matmul_precision: str | None = None
  parts: FamilyParts | None = None
  mesh: Mesh | None = None
  programs: Programs = dataclasses.field(default_factory=Programs, init=False, repr=False)
  _decoders: Programs = dataclasses.field(default_factory=Programs, init=False, repr=False)

  def __repr__(self) -> str:
    drafts = f", drafts {', '.join(self.drafts)}" if self.drafts else ""
    what = f"{self.family.noun}s from {type(self.family).__name__}{drafts}; method {self.default_method}"
    return f"<{type(self).__name__} {self.name}: {what}>"

  def methods(self) -> list[str]:
    """Names of the methods for these networks, by kinds of tokens, their grid, and families of drafts."""
    return [name for name, cls in METHODS.items() if self._can_draft(cls)]

  @functools.cached_property
  def default_method(self) -> str:
    """The bundle's default; else the first method with a draft network; else plain decoding."""
    if self.defaults.method is not None:
      return self.defaults.method
    drafting = [name for name in self.methods() if self.drafts_of(METHODS[name])]
    of_default = [name for name in drafting if self.defaults.draft in self.drafts_of(METHODS[name])]
    return next(iter(of_default + drafting), "ar")

  @values_as(OptionError)
  def default_draft(self, method: type[Method] | Method) -> str:
    """Name of a method's default draft.

    It is the bundle's default draft for the bundle's default method, else the first of the method's family of drafts, else
    the draft without a network (`Method.free_draft`).

    Raises:
      OptionError: if there is no such draft.
    """
    name, default = method.name, self.defaults.draft
    if not self.drafts and method.free_draft is not None:
      return method.free_draft
    if not self.drafts:
      raise ValueError(f"Must have a draft for method {name}, {self.name} has none: use method ar")
    if default is not None and self.defaults.method == name:
      return default
    fitting = self.drafts_of(method)
    if self.defaults.method is None and default in fitting:
      return default
    if not fitting:
      families, known = " or ".join(self._families(method)), ", ".join(self.drafts)
      raise ValueError(f"Must have a draft of the family {families} for method {name}, {self.name} has {known}")
    return fitting[0]

  @values_as(OptionError)
  def method(self, method: Method | str | None = None, **options: Any) -> Method:
    """A method with the bundle's default options, its draft by name.

    Args:
      method: a name; None is the default. A `Method` keeps its own options; the bundle's do not apply.
      options: override the defaults; ``draft`` is the name of a draft, or a `Network`.
    Raises:
      OptionError: for an unknown method or option, an option out of range, a method for another kind of tokens, or an
        unknown draft.
    """
    draft = options.pop("draft", None)
    made = self.without_draft(method, **options)
    if not isinstance(made, DraftingMethod) or made.draft_family is None:
      if draft is not None:
        raise ValueError(f"Must have no draft with method {made.name}, we instead got {getattr(draft, 'name', draft)!r}")
      return made
    draft = next((given for given in (draft, made.draft) if given is not None), None)
    draft = self.default_draft(made) if draft is None else draft
    if not isinstance(draft, Network) and draft not in (*self.drafts, made.free_draft):
      known = ", ".join(filter(None, (*self.drafts, made.free_draft)))
      raise ValueError(f"Must have a draft in {known or '(none)'}, we instead got {draft!r}")
    if isinstance(draft, str) and draft in self.drafts and draft not in self.drafts_of(made):
      families = " or ".join(self._families(made))
      fitting = ", ".join(name for name in self.methods() if draft in self.drafts_of(METHODS[name])) or "none here"
      raise ValueError(
        f"Must have a checkpoint of the family {families} as draft of {made.name}, we instead got {draft} (for {fitting})"
      )
    return made if made.draft is draft else dataclasses.replace(made, draft=draft)

  @values_as(OptionError)
  def without_draft(self, method: Method | str | None = None, **options: Any) -> Method:
    """A method with its options, see `method`, for decodes without a draft or with a remote one.

    Raises:
      OptionError: for an unknown method or option, an option out of range, or a method for another kind of tokens.
    """
    if isinstance(method, Method):
      declared = options_of(type(method))
      if unknown := sorted(options.keys() - declared.keys()):
        raise ValueError(
          f"Must have options that method {method.name} declares, we instead got {', '.join(unknown)}"
          f"{suggestion(unknown[0], declared)}"
        )
      made = dataclasses.replace(method, **options)
    else:
      cls = get_method(self.default_method if method is None else method)
      declared = options_of(cls)
      made = make_method(cls.name, **{k: v for k, v in self.defaults.options.items() if k in declared} | options)
    if not made.fits(self.family.space.kind):
      raise ValueError(f"Must have a method that draws {self.family.space.noun}, we instead got {made.name}")
    return made

  @values_as(OptionError)
  def sampling(self, **overrides: Any) -> AnySampling:
    """The sampling settings: ``overrides``, and the bundle's defaults for the rest.

    Raises:
      OptionError: for an unknown name or a value out of range.
    """
    kind = self.family.sampling_type
    if unknown := sorted(overrides.keys() - {field.name for field in dataclasses.fields(kind)}):
      known = ", ".join(options_of(kind))
      hint = suggestion(unknown[0], options_of(kind)) or ": options belong to the method"
      raise ValueError(f"Must have sampling settings in {known}, we instead got {unknown[0]}{hint}")
    return kind(**self.family.resolve_sampling(self.defaults.sampling, overrides))

  @values_as(OptionError)
  def decoder(
    self,
    method: Method | str | None = None,
    *,
    sampling: AnySampling | None = None,
    audit: bool = False,
    **overrides: Any,
  ) -> Decoder:
    """All inputs of a decode except the condition and the key; equal arguments give the same object.

    Args:
      method: as for `method`.
      sampling: all settings; by default those of `sampling` with ``overrides``.
      audit: report the exact distribution of every committed token.
    Raises:
      OptionError: if a setting is out of range, or the draft does not fit.
    """
    method = self.method(method)
    if sampling is None:
      sampling = self.sampling(**overrides)
    elif not isinstance(sampling, self.family.sampling_type):
      raise ValueError(f"Must have a {self.family.sampling_type.__name__} as sampling, we instead got {sampling!r}")
    elif overrides:
      raise ValueError(f"Must have either sampling or single settings, we instead got both ({sorted(overrides)[0]})")
    key = (method, sampling, audit)
    return self._decoders.get(key, lambda: self._make_decoder(method, sampling, audit))

  def _make_decoder(self, method: Method, sampling: AnySampling, audit: bool) -> Decoder:
    family, draft = self.family, None
    num_tokens = family.row_tokens(sampling)
    if num_tokens is not None:
      method.check_length(num_tokens)
    if isinstance(method, DraftingMethod):
      draft = method.draft
      if draft == method.free_draft:
        draft = None
      elif isinstance(draft, str):
        family.check_fit(self.drafts.loaded(draft), method.draft_family)
        draft = self.drafts[draft]
    return Decoder(
      target=self.target,
      method=method,
      draft=draft,
      sampling=sampling,
      space=family.space,
      audit=audit,
      matmul_precision=self.matmul_precision,
    )

  @values_as(PromptError)
  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """Prompts in the target's form.

    Args:
      prompts: as for `Family.encode`: texts, class names or numbers, features. A condition of the family's type and an
        `Encoded` are returned unchanged.
      captions: texts of the rows for display.
    Raises:
      PromptError: naming the first prompt that cannot be encoded.
    """
    if isinstance(prompts, Encoded):
      return prompts
    if isinstance(prompts, self.family.condition_type):
      prompts = narrow(prompts)
      return Encoded(prompts, check_captions(captions, [f"row {row}" for row in range(prompts.batch_size)], "rows"))
    with precision_context():
      return self.family.encode(prompts, captions)

  @values_as(OptionError)
  def warnings(self, decoder: Decoder, condition: PyTree, max_len: int | None = None) -> list[str]:
    """Warnings about a decode for the user, one line each.

    Raises:
      OptionError: if ``max_len`` is larger than the number of tokens of a row.
    """
    length, found = self.length(decoder, max_len), []
    draft = decoder.drafting
    for network in (decoder.target, draft):
      if network is not None:
        found += self.family.check_length(network, condition, length)
    trained_at = None if draft is None else draft.meta.get("distilled_at_cfg")
    if draft is not None and trained_at is not None and trained_at != decoder.sampling.cfg_scale:
      found.append(
        f"The draft {draft.name} was trained for cfg_scale {trained_at:g}: at {decoder.sampling.cfg_scale:g} fewer "
        "of its tokens may be accepted"
      )
    return found

  def decode_fn(self, decoder: Decoder, max_len: int | None = None, *, ends: bool = True) -> Program:
    """One batch from conditions to finished tokens, as a pure function to be compiled.

    It takes ``decoder.parts.params``, the key data of ``[B]`` row keys, and a condition of ``B`` rows. Compile and call it
    inside `context`; `jaxspec.run.run.prepare` does both.

    Args:
      ends: whether the family's end token ends a row.
    Raises:
      ValueError: for a target without weights.
    """
    self.check_weights()
    length, family, sampling = self.length(decoder, max_len), self.family, decoder.sampling
    inner = decoder.decode_fn(max_len=length, end_token=family.end_token if ends else None)

    def decode(params: SpecParams, key_data: Array, condition: PyTree) -> DecodeResult:
      keys = rng.of_key_data(key_data)
      condition = family.prepare(keys, condition)
      result = inner(params, key_data, condition)
      return family.finish(result, condition, keys, params, sampling)

    return decode if self.mesh is None else meshes.over_rows(decode, self.mesh)

  def static_key(self, decoder: Decoder, max_len: int | None = None, *, ends: bool = True) -> Hashable:
    """All static values of the program of `decode_fn`; decoders that differ in traced numbers share a key."""
    parts = decoder.parts
    # Settings for a family's own `finish` are static.
    of_finish = None if type(self.family).finish is Family.finish else decoder.sampling
    statics = parts.drafter, parts.verifier, parts.target_prefix, parts.decode
    return (*statics, of_finish, self.length(decoder, max_len), ends)

  def check_weights(self) -> None:
    """Raises a ValueError for a target without weights."""
    if not self.target.has_weights:
      raise ValueError(f"Must have the target's weights to decode here, {self.name} was loaded without them")

  @contextlib.contextmanager
  def context(self) -> Generator[None, None, None]:
    """The context to compile and run this pipeline's decodes: precision of products, and the mesh."""
    with contextlib.ExitStack() as stack:
      stack.enter_context(precision_context(self.matmul_precision))
      if self.mesh is not None:
        stack.enter_context(jax.set_mesh(self.mesh))
      yield

  def place(self, rows: PyTree) -> PyTree:
    """Inputs ``[B, ...]`` of a decode, on their devices.

    Raises:
      ValueError: if the mesh does not divide the rows.
    """
    return rows if self.mesh is None else meshes.rows(rows, self.mesh)

  @values_as(OptionError)
  def length(self, decoder: Decoder, max_len: int | None) -> int:
    """Largest number of tokens of a row; an OptionError for a length that is not positive."""
    return self.family.default_length(decoder.sampling) if max_len is None else check_length(max_len)

  def _families(self, method: type[Method] | Method) -> tuple[str, ...]:
    return self.family.family_names(method.draft_family)

  def drafts_of(self, method: type[Method] | Method) -> list[str]:
    """Names of the drafts for a method, by their families."""
    families = self._families(method)
    return [name for name in self.drafts if self.drafts.family_name(name) in families]

  def _can_draft(self, method: type[Method]) -> bool:
    needs_network, space = method.draft_family is not None and method.free_draft is None, self.family.space
    fits = method.fits(space.kind) and (space.grid is not None or not method.needs_grid)
    return fits and (not needs_network or bool(self.drafts_of(method)))
