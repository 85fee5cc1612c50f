"""``jaxspec generate --class NAME``: pictures of a class from vector tokens (MAR, or its causal variant)."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from jaxspec.cli.errors import UserError, check_writable, interruptible, reading, write_whole
from jaxspec.cli.shipped import named, shipped
from jaxspec.decode.class_methods import METHODS, ClassMethod, class_decode, signal_of
from jaxspec.decode.token_methods import TokenSampling, nearest_stop
from jaxspec.diffusion.schedule import kept_steps
from jaxspec.verifiers.path_coupling import PathCoupling
from jaxspec.verifiers.path_ratio import PathRatio

# The pair on which speculation pays; several tokens at a time need a masked network.
DEFAULT_BUNDLE, DEFAULT_MASKED = "classes64-causal", "classes64"
_SPECULATIVE = ("draft", "gamma", "exact", "prefill", "no_align", "inner_temperature", "max_tries")
_OPTIONS = frozenset(
  "classes out samples checkpoint method cfg_scale temperature seed batch heatmap json_file raw no_cache num_iter steps "
  "stop".split()
) | frozenset(_SPECULATIVE)
_DEFAULTS = {
  "method": "cspd", "gamma": 8, "prefill": 0.0, "inner_temperature": 1.0, "max_tries": None, "cfg_scale": 1.0,
  "temperature": 1.0, "steps": 100, "stop": None, "num_iter": 64, "draft": None, "refine": False,
}  # fmt: skip


@dataclasses.dataclass
class ClassRun:
  """What was drawn: numpy leaves ``[pictures, ...]``; ``origin`` and ``commit_round`` in raster order, None for parallel."""

  images: np.ndarray
  counters: dict[str, np.ndarray]
  origin: np.ndarray | None
  commit_round: np.ndarray | None
  replaced: dict[str, int]
  compile_s: float
  run_s: float
  pixels_s: float


def run(options: dict[str, Any], given: list[str]) -> None:
  """Draws pictures of ``options["classes"]``; arguments as in `jaxspec.cli.text.run`."""
  _check_options(options, given)
  files = {name: options[key] for name, key in (("pictures", "out"), ("heatmap", "heatmap"), ("json", "json_file"))}
  files = {name: path for name, path in files.items() if path is not None}
  for name, path in files.items():
    check_writable(path, suffix=".json" if name == "json" else ".png")
  if len({path.resolve() for path in files.values()}) < len(files):
    raise UserError("Must have different files for --out and --heatmap, we instead got the same twice")

  from rich.console import Console

  with Console(stderr=True).status("Loading") as status:
    settings, names, drawn = _work(options, lambda text: status.update(text))
    _write(options, files, settings, names, drawn)
  _print(Console(highlight=False), settings, drawn, files)


def _check_options(options: dict[str, Any], given: list[str]) -> None:
  """Finds contradictions before anything is loaded."""
  flags = {param.name: param.opts[0] for param in click.get_current_context().command.params}
  if options["prompts"]:
    raise UserError(f"Must have either --class or prompts, we instead got both ({options['prompts'][0]!r})")
  if refused := [flags[name] for name in given if name not in _OPTIONS and name != "prompts"]:
    raise UserError(f"{refused[0]} does not go with --class NAME")
  method = options["method"] or _DEFAULTS["method"]
  if method not in METHODS:
    raise UserError(f"Must have --method {', '.join(METHODS)} with --class NAME, we instead got {method}")
  if method != "cspd" and (wrong := [flags[name] for name in given if name in _SPECULATIVE]):
    raise UserError(f"{wrong[0]} goes with --method cspd, we instead got --method {method}")
  if method != "parallel" and options["num_iter"] is not None:
    raise UserError(f"--num-iter goes with --method parallel, we instead got --method {method}")
  if method == "parallel" and options["heatmap"] is not None:
    raise UserError("--heatmap goes with --method cspd or ar: parallel decoding accepts nothing")
  if options["exact"] and (options["no_align"] or options["inner_temperature"] is not None):
    raise UserError("--exact has neither --no-align nor --inner-temperature, which are about the published rule")


def _resolve(options: dict[str, Any], defaults: dict[str, Any], drafts: list[str]) -> dict[str, Any]:
  """What the user says, over what the networks were trained for."""
  settings = dict(_DEFAULTS) | {name: value for name, value in defaults.items() if name in _DEFAULTS}
  settings |= {name: options[name] for name in _DEFAULTS if options.get(name) is not None}
  if options["stop"] is None and settings["stop"] is not None and (options["steps"] or 0) > 1:
    settings["stop"] = nearest_stop(options["steps"], defaults["steps"], defaults["stop"])
  settings["refine"] = settings["refine"] and bool(settings["stop"])
  settings |= {name: options[name] for name in ("exact", "no_align", "samples", "seed", "classes")}
  if settings["method"] != "cspd":
    settings["draft"] = None
  elif not drafts:
    raise UserError("The bundle has no draft: use --method ar")
  else:
    settings["draft"] = settings["draft"] or drafts[0]
  if settings["exact"] and settings["stop"] is None:
    raise UserError("Must have --stop STEP with --exact: the exact rule needs chains that end with noise")
  return settings


def _work(options: dict[str, Any], report) -> tuple[dict[str, Any], list[str], ClassRun]:
  """Loads, compiles and draws: the settings, the class of every picture, and what was drawn."""
  import jax

  from jaxspec import token_bundle
  from jaxspec.cli import compilation_cache, decoding
  from jaxspec.cli import settings as cli_settings
  from jaxspec.models.conditions import ClassLabels

  if not options["no_cache"]:
    compilation_cache.enable()
  path = options["checkpoint"]
  if path is None:
    path = shipped(DEFAULT_MASKED if options["method"] == "parallel" else DEFAULT_BUNDLE)
  path = named(path)
  with reading(path):
    bundle = token_bundle.load_token_bundle(path, drafts=None if options["draft"] is None else [options["draft"]])
    chosen = _resolve(options, bundle.defaults, list(bundle.drafts))
    condition = ClassLabels(np.asarray(bundle.labels(list(options["classes"])), np.int32))
    method = _method(chosen)
    params, decode = class_decode(bundle, method)
  rows = cli_settings.batch_rows(options["batch"], len(options["classes"]) * options["samples"])
  batches = decoding.make_batches(condition, samples=options["samples"], seed=options["seed"], rows=rows)
  num = len(batches.prompt)

  report(f"Compiling {METHODS[chosen['method']]}")
  started = time.perf_counter()
  lowered = lambda: jax.jit(decode).lower(params, batches.key_data[0], batches.condition[0])
  compiled = interruptible(lambda: lowered().compile())
  compile_s, started = time.perf_counter() - started, time.perf_counter()
  report(f"Drawing {num} pictures by {METHODS[chosen['method']]}")
  work = lambda: [jax.block_until_ready(compiled(params, k, c)) for k, c in zip(batches.key_data, batches.condition)]
  parts = interruptible(work)
  run_s, started = time.perf_counter() - started, time.perf_counter()
  report("Turning tokens into pixels")
  from jaxspec.models.kl_vae import to_uint8

  pixels = jax.jit(lambda vae_params, tokens: to_uint8(bundle.pictures(vae_params, tokens, signal_of(method))))
  drawing = lambda: [np.asarray(pixels(bundle.vae.params, part.tokens)) for part in parts]
  images = np.concatenate(interruptible(drawing))[:num]
  whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *jax.device_get(parts))
  counters = {name: getattr(whole.counters, name) for name in whole.counters.__dataclass_fields__}
  replaced = {}
  if chosen["method"] == "cspd":
    replaced = {"tries": int(whole.report.tries.sum()), "fallbacks": int(whole.report.fallback.sum())}
  drawn = ClassRun(
    images, counters, whole.origin, whole.commit_round, replaced, compile_s, run_s, time.perf_counter() - started
  )
  return chosen, [options["classes"][index] for index in batches.prompt], drawn


def _method(chosen: dict[str, Any]) -> ClassMethod:
  """What the settings ask for."""
  rule = None
  if chosen["method"] == "cspd":
    cap = {} if chosen["max_tries"] is None else {"max_tries": chosen["max_tries"]}
    if chosen["exact"]:
      rule = PathCoupling(**cap)
    else:
      rule = PathRatio(align=not chosen["no_align"], inner_temperature=chosen["inner_temperature"], **cap)
  return ClassMethod(
    chosen["method"], TokenSampling(chosen["steps"], chosen["stop"], chosen["temperature"], chosen["cfg_scale"]),
    draft=chosen["draft"], gamma=chosen["gamma"], rule=rule, prefill=chosen["prefill"], num_iter=chosen["num_iter"],
    refine=chosen["refine"],
  )  # fmt: skip


def _figures(drawn: ClassRun) -> dict[str, Any]:
  total = {name: int(values.sum()) for name, values in drawn.counters.items()}
  if total.get("drafted"):
    total["acceptance"] = total["accepted"] / total["drafted"]
  return total | drawn.replaced | {"compile_s": drawn.compile_s, "run_s": drawn.run_s, "pixels_s": drawn.pixels_s}


def _write(options: dict[str, Any], files: dict[str, Path], chosen: dict[str, Any], names: list[str], drawn: ClassRun):
  from jaxspec.cli import pictures
  from jaxspec.cli.heatmap import draw_heatmap

  about = {"settings": chosen, "captions": names}
  columns = pictures.columns_for(len(names), options["samples"], 1)
  if options["raw"]:
    sheet = pictures.raw_grid([[image] for image in drawn.images], columns)
  else:
    cells = [pictures.Cell([pictures.enlarge(image)], [], name) for image, name in zip(drawn.images, names)]
    sheet = pictures.draw_grid(cells, columns)
  write_whole(files["pictures"], lambda path: pictures.save_png(sheet, path, about))
  if "heatmap" in files:
    maps = draw_heatmap(drawn, drawn.images, names, columns=pictures.columns_for(len(names), options["samples"], panels=3))
    write_whole(files["heatmap"], lambda path: pictures.save_png(maps, path, about))
  if "json" in files:
    each = {name: values.tolist() for name, values in drawn.counters.items()}
    document = {"settings": chosen, "captions": names, "figures": _figures(drawn), "pictures": each}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    write_whole(files["json"], lambda path: path.write_text(text + "\n", encoding="utf-8"))


def _print(console, chosen: dict[str, Any], drawn: ClassRun, files: dict[str, Path]) -> None:
  from rich.table import Table

  num = len(drawn.images)
  parts = [METHODS[chosen["method"]]]
  if chosen["method"] == "cspd":
    rule = "exact rule" if chosen["exact"] else "published rule, not exact"
    parts += [f"draft {chosen['draft']}", f"gamma {chosen['gamma']}", rule, f"prefill {chosen['prefill']:.0%}"]
  parts += [f"guidance {chosen['cfg_scale']:g}" if chosen["cfg_scale"] > 1 else "no guidance"]
  parts.append(f"{len(kept_steps(str(chosen['steps'])))} steps")
  console.print(f"{num} picture{'s' * (num != 1)} by " + ", ".join(parts), soft_wrap=True)
  figures, table = _figures(drawn), Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
  table.add_row("drawing", f"{drawn.run_s:.1f} s")
  table.add_row("compiling", f"{drawn.compile_s:.1f} s")
  table.add_row("target calls per picture", f"{figures['target_calls'] / num:.1f}")
  if "acceptance" in figures:
    table.add_row("drafts accepted", f"{figures['accepted']:,} of {figures['drafted']:,} ({figures['acceptance']:.1%})")
    table.add_row("proposals for refused tokens", f"{figures['tries']:,}, {figures['fallbacks']:,} times none passed")
  console.print(table)
  for path in files.values():
    console.print(f"wrote {path}", soft_wrap=True)
