"""The command line and the lines of Python that decode the same tokens as an entrant of a comparison."""

from __future__ import annotations

import math
import shlex
from typing import Any

from jaxspec.core.options import values_of
from jaxspec.core.precision import PRECISIONS
from jaxspec.io.model_folders import network_name
from jaxspec.run.decode_options import flag
from jaxspec.run.job import Job, draft_name
from jaxspec.run.sources import Sources
from jaxspec.studio.schema import ComparisonRequest


def command(job: Job, kind: str, request: ComparisonRequest, networks: Sources = Sources()) -> str:
  """A line of the shell.

  Args:
    kind: of the prompts: prompt, class or text.
    networks: sources of the loaded networks.
  """
  words, (networks, draft) = ["jaxspec", "generate"], _drafting(job, networks)
  for name, path in networks._asdict().items():
    words += [] if path is None else [flag(name), f"{path}"]
  words += ["--method", job.method.name]
  words += [] if draft is None else ["--draft", draft]
  for name, value in (_options(job) | _sampling(job)).items():
    words += (
      [flag(name) if value else f"--no-{name.replace('_', '-')}"] if isinstance(value, bool) else [flag(name), f"{value}"]
    )
  words += ["--seed", f"{job.seed}"]
  words += [] if job.pipeline.dtype == "float32" else ["--dtype", job.pipeline.dtype]
  products = job.pipeline.matmul_precision or job.pipeline.dtype
  if products in PRECISIONS:
    words += ["--matmul-precision", products]
  else:  # a precision with a name of JAX alone
    words = [f"JAX_DEFAULT_MATMUL_PRECISION={products}", *words]
  if kind == "text":
    words += ["--max-tokens", f"{job.max_len}"]
  if kind != "prompt":
    return shlex.join(words + [f"--{kind}={prompt}" for prompt in request.prompts])
  return shlex.join([*words, "--", *request.prompts])


def snippet(job: Job, kind: str, request: ComparisonRequest, networks: Sources = Sources()) -> str:
  """Lines of Python; arguments as in `command`."""
  prompts = [int(prompt) if kind == "class" and prompt.isdecimal() else prompt for prompt in request.prompts]
  products = job.pipeline.matmul_precision
  is_ours = products in (None, *PRECISIONS)
  named = {"dtype": job.pipeline.dtype} | ({"matmul_precision": products} if is_ours else {})
  setting = "" if is_ours else f'jax.config.update("jax_default_matmul_precision", {products!r})\n'
  loaded = [repr(str(networks.model))] * (networks.model is not None)
  named = {name: str(path) for name, path in networks.parts.items()} | named
  loaded += [f"{name}={value!r}" for name, value in named.items() if value]
  draft = {} if draft_name(job.method) is None else {"draft": draft_name(job.method)}
  method = ", ".join([repr(job.method.name), *_arguments(draft | _options(job))])
  length = [f"max_len={job.max_len}"] * (kind == "text")
  call = ", ".join([repr(prompts), f"key={job.seed}", "method=method", *length, *_arguments(_sampling(job))])
  return (
    f"import {'' if is_ours else 'jax, '}jaxspec\n\n{setting}"
    f"pipe = jaxspec.load_pipeline({', '.join(loaded)})\n"
    f"method = pipe.method({method})\n"
    f"out = pipe({call})\n"
  )


def _drafting(job: Job, networks: Sources) -> tuple[Sources, str | None]:
  """The networks to name, and the name of the draft if its folder is not one of them."""
  name, given = draft_name(job.method), networks.draft_model
  if given is not None and network_name(given) == name:
    return networks, None
  return networks._replace(draft_model=None), name


def _options(job: Job) -> dict[str, Any]:
  """The options of the method that differ from those of the bundle."""
  return _changed(job.method.options(), job.pipeline.method(job.method.name).options())


def _sampling(job: Job) -> dict[str, Any]:
  """The sampling settings that differ from those of the bundle."""
  return _changed(values_of(job.sampling), values_of(job.pipeline.sampling()))


def _changed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
  return {name: value for name, value in values.items() if value != defaults[name] and value is not None}


def _arguments(values: dict[str, Any]) -> list[str]:
  is_infinite = lambda value: isinstance(value, float) and math.isinf(value)
  return [f'{name}=float("{value}")' if is_infinite(value) else f"{name}={value!r}" for name, value in values.items()]
