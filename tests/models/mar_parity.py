"""Agreement with the official MAR and CSpD code: compares every array of the golden files, each with its tolerance.

One function per golden file yields `Row` values. The tests assert them, and ``python -m experiments.run parity:mar`` prints
them. Weights go through the real conversion of the official files. Tolerances are those of the README beside the files, and
smaller for small arrays.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from conversion import engine
from conversion.mar import FAMILY as MAR_FAMILY
from conversion.mar_vae import FAMILY as VAE_FAMILY
from jaxspec.core import orders
from jaxspec.core.network import Network
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.ddpm import ChainSummary, Prediction, TokenNoise
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.io import checkpoints
from jaxspec.methods import masked_decode
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.diff_loss import DiffLoss
from jaxspec.models.mar.mar import MAR, patchify, unpatchify
from jaxspec.models.nn.denoising import timestep_features
from jaxspec.models.tokenizers.kl_vae import LATENT_SCALE
from jaxspec.rules import couplings, gaussian_path
from jaxspec.sampling import unmasking
from jaxspec.training.mar_loss import mar_loss, num_masked
from tests.parity import GoldenRows, Row, max_error

GOLDEN = Path(__file__).parents[1] / "golden" / "mar"
HEADS = {"mar_target": 4, "mar_draft": 2}


def _constant(masked: jax.Array, num_tokens: int, scale: jax.Array) -> jax.Array:
  """The official schedule of guidance with the same scale in every iteration."""
  return scale + 0.0 * masked


SAMPLE_CASES = {  # name: (iterations, guidance scale, guidance schedule, temperature, class-conditional)
  "a": (16, None, unmasking.linear_guidance, 1.0, True),
  "b": (4, 2.9, unmasking.linear_guidance, 1.0, True),
  "c": (7, 2.0, _constant, 0.95, True),
  "d": (5, None, unmasking.linear_guidance, 1.0, False),
}
T100 = diffusion_tables("100")


class Rows(GoldenRows):
  """The default tolerance is the README's: 1e-4 of the largest magnitude, or of 1."""

  def __init__(self, golden: str, inputs: str = ""):
    super().__init__(GOLDEN, golden, inputs.split())

  def add(self, name: str, got: Any, tolerance: float | None = None) -> None:
    expected = self.arrays[name]
    if tolerance is None:
      tolerance = 0.0 if expected.dtype.kind in "iub" else 1e-4 * max(1.0, float(np.max(np.abs(expected))))
    super().add(name, got, tolerance)


@functools.cache
def load(stem: str) -> Network:
  """The checkpoint converted from an official file."""
  vae = stem == "vae"
  file = next(GOLDEN / f"{stem}{end}" for end in (".pth", ".ckpt", ".safetensors") if (GOLDEN / f"{stem}{end}").exists())
  fields = {} if vae else {"encoder_heads": HEADS[stem], "decoder_heads": HEADS[stem]}
  with tempfile.TemporaryDirectory() as folder:
    engine.convert_file(file, Path(folder) / "model", VAE_FAMILY if vae else MAR_FAMILY, fields)
    return checkpoints.load(Path(folder) / "model")


def channels_last(x: np.ndarray) -> jax.Array:
  return jnp.asarray(np.moveaxis(x, 1, -1))


def channels_first(x: jax.Array) -> np.ndarray:
  return np.moveaxis(np.asarray(x), -1, 1)


def labels(array: np.ndarray) -> ClassLabels:
  return ClassLabels(jnp.asarray(array, jnp.int32))


def generation_order(official: np.ndarray) -> jax.Array:
  """Reverses official orders, because the official code generates from their end."""
  return jnp.asarray(np.ascontiguousarray(official[:, ::-1]), jnp.int32)


# The transformer.


def watch(call: Callable, watched: Callable[[nn.Module, str], str | None]) -> dict[str, jax.Array]:
  """Values inside of ``call()``: ``watched(module, method)`` names the input and output of a call, or is None."""

  seen = {}

  def spy(next_call, args, kwargs, context):
    out = next_call(*args, **kwargs)
    if name := watched(context.module, context.method_name):
      seen[f"{name}_in"], seen[name] = args[0], out
    return out

  with nn.intercept_methods(spy):
    result = call()
  return seen | {"result": result}


def forward() -> list[Row]:
  """Encoder and decoder, layer by layer, with a partial and a full mask."""
  rows = Rows("forward", "latents labels mask")
  model = load("mar_target")
  tokens = patchify(channels_last(rows["latents"]), 1)
  rows.add("tokens", tokens, 0)
  rows.add("unpatchified", channels_first(unpatchify(jnp.asarray(rows["tokens"]), 1)), 0)
  condition, buffer = labels(rows["labels"]), model.config.buffer_size
  watched = lambda module, method: module.name if method == "__call__" and isinstance(module.parent, MAR) else None

  null = model.fns.null_condition(model.params, condition)

  @jax.jit
  def run(tokens, order, known, condition):
    return watch(lambda: model.fns.condition(model.params, tokens, order, known, condition), watched)

  partial, everything = rows["mask"], np.ones_like(rows["mask"])
  encoder = {"enc_block0": "encoder_blocks_0", "enc_block1": "encoder_blocks_1", "enc_out": "encoder_norm"}
  decoder = {"dec_in": "decoder_blocks_0_in", "dec_block0": "decoder_blocks_0", "dec_block1": "decoder_blocks_1"}
  for prefix, mask, given in (("part", partial, condition), ("full", everything, condition), ("uncond", partial, null)):
    order = jnp.argsort(jnp.asarray(mask).astype(jnp.int32), axis=1, stable=True)
    known = int(np.sum(mask[0] == 0))
    seen = run(orders.to_generation_order(tokens, order), order, jnp.asarray([known]), given)
    raster = lambda x, order=order: np.concatenate([x[:, :buffer], orders.to_raster(x[:, buffer:], order)], axis=1)
    rows.add(f"{prefix}_z", orders.to_raster(seen["result"], order))
    if prefix == "uncond":
      continue
    rows.add(f"{prefix}_embed_ln", raster(seen["z_proj_ln"]))
    for name, ours in encoder.items():
      rows.add(f"{prefix}_{name}", seen[ours][:, : buffer + known])
    for name, ours in decoder.items():
      rows.add(f"{prefix}_{name}", raster(seen[ours]))
  return rows.done()


# The diffusion head.


def schedule() -> list[Row]:
  """Numbers of masked tokens and the linear guidance."""
  rows = Rows("schedule")
  for name in rows.arrays:
    setting, kind = name.split(".", 1)
    length, num_iter = (int(part[1:]) for part in setting.split("_"))
    lengths = np.asarray(unmasking.mask_lengths(length, num_iter))
    if kind == "mask_len":
      rows.add(name, lengths)
    else:
      rows.add(name, unmasking.linear_guidance(lengths.astype(np.float32), length, np.float32(2.9)), 1e-6)
  return rows.done()


def tables() -> list[Row]:
  """Diffusion tables, relative errors in float64."""
  rows = Rows("diffusion_tables")
  for name, expected in list(rows.arrays.items()):
    setting, field = name.split(".")
    respacing = {"full": "", "r10_15_20": "10,15,20"}.get(setting, setting.removeprefix("r"))
    got = getattr(diffusion_tables(respacing), "timesteps" if field == "timestep_map" else field)
    size = np.where(expected == 0, 1, np.abs(expected))
    rows.arrays[name] = expected / size
    rows.add(name, got / size, 0 if field == "timestep_map" else 1e-9)
  return rows.done()


def _head(model: Network) -> tuple[DiffLoss, dict]:
  config = model.config
  return DiffLoss(config.token_dim, config.diffloss_width, config.diffloss_depth), {"params": model.params["diffloss"]}


def diffloss_net() -> list[Row]:
  """The denoising network, layer by layer, and its guidance."""
  rows = Rows("diffloss_net", "x t c")
  model = load("mar_target")
  head, variables = _head(model)
  x, t, c = (jnp.asarray(rows[name]) for name in "xtc")
  rows.add("t_freq", timestep_features(t))
  watched = lambda module, method: module.name if method == "__call__" and isinstance(module.parent, DiffLoss) else None

  @jax.jit
  def run(x, t, c):
    return watch(lambda: jnp.concatenate(head.apply(variables, x, t, c)[:2], axis=-1), watched)

  # Both halves of a guided call at once; the first rows are the plain call.
  seen = run(jnp.concatenate([x, x]), jnp.concatenate([t, t]), jnp.concatenate([c, c[::-1]]))
  first = lambda name: seen[name][: len(x)]
  rows.add("t_emb", first("time_embed"))
  rows.add("c_emb", first("cond_embed"))
  for i in range(model.config.diffloss_depth):
    rows.add(f"res_block{i}", first(f"res_blocks_{i}"))
  rows.add("out", first("result"))
  conditional, unconditional = (Prediction(*np.split(half, 2, axis=-1)) for half in np.split(np.asarray(seen["result"]), 2))
  for scale in (1.0, 2.9):
    guided = ddpm.guide(conditional, unconditional, scale)
    # The official call also returns a second half: the same noise, the unconditional variance.
    halves = [np.concatenate([guided.eps, v], axis=-1) for v in (guided.v, unconditional.v)]
    rows.add(f"out_cfg_{scale}", np.concatenate(halves))
  return rows.done()


def p_mean_variance() -> list[Row]:
  """Distribution of single steps, plain and guided; every row is at its own step."""
  rows = Rows("p_mean_variance", "x c index")
  model = load("mar_target")
  x, c, index = (jnp.asarray(rows[name]) for name in ("x", "c", "index"))
  rows.add("timestep", T100.timesteps[rows["index"]])

  @jax.jit
  def run(params):
    predictor = lambda z: model.fns.predictor(params, z, T100.timesteps)
    predict_fns = predictor(c[: len(x)]), ddpm.guided(predictor(c), 2.5)
    return [ddpm.step_distribution(T100, index[:, None], x, predict_fn(index[:, None], x)) for predict_fn in predict_fns]

  for prefix, distribution in zip(("", "cfg2.5_"), run(model.params), strict=True):
    relative = lambda name: 5e-5 * float(np.max(np.abs(rows[name])))
    rows.add(f"{prefix}mean", distribution.mean, relative(f"{prefix}mean"))
    rows.add(f"{prefix}variance", np.exp(distribution.log_variance))
    rows.add(f"{prefix}log_variance", distribution.log_variance)
    rows.add(f"{prefix}pred_xstart", distribution.x0, relative(f"{prefix}pred_xstart"))
  return rows.done()


def diffloss_sample() -> list[Row]:
  """Whole chains of single tokens with given noise."""
  rows = Rows("diffloss_sample", "init_noise step_noise z_cond z_uncond")
  model = load("mar_target")
  noise = TokenNoise(jnp.asarray(rows["init_noise"]), jnp.asarray(np.moveaxis(rows["step_noise"], 0, 1)))
  cond, uncond = jnp.asarray(rows["z_cond"]), jnp.asarray(rows["z_uncond"])
  for name, temperature, scale in (("plain", 1.0, None), ("temp0.9", 0.9, None), ("cfg3", 1.0, 3.0)):

    @jax.jit
    def run(params, scale=scale, temperature=temperature):
      z = cond if scale is None else jnp.concatenate([cond, uncond])
      predict_fn = model.fns.predictor(params, z, T100.timesteps)
      predict_fn = predict_fn if scale is None else ddpm.guided(predict_fn, scale)
      return ddpm.sample(predict_fn, T100, noise, jnp.float32(temperature), record=True)

    chain = run(model.params)
    # Entry i of states enters step i, so the outputs of the steps T - 1, ..., 0 are:
    trajectory = np.concatenate([np.asarray(chain.states)[:-1][::-1], np.asarray(chain.token)[None]])
    rows.add(f"{name}_sample", chain.token)
    rows.add(f"{name}_traj", trajectory)
  return rows.done()


# Generation.


def _noise(rows: GoldenRows) -> TokenNoise:
  return TokenNoise(jnp.asarray(rows["init_noise"]), jnp.asarray(rows["step_noise"]))


@functools.partial(jax.jit, static_argnames=("fns", "slots", "width", "record"))
def step(fns, params, tokens, order, known, count, condition, noise, scale, temperature, *, slots, width, record=False):
  """One iteration of the decode, compiled for its size."""
  return masked_decode.generation_step(
    fns, params, T100, tokens, order, known, count, condition, noise,
    slots=slots, width=width, scale=scale, temperature=temperature, record=record,
  )  # fmt: skip


def mar_sample_program(case: str) -> list[Row]:
  """A complete generation with given orders and noise by the compiled program."""
  rows = Rows("mar_sample")
  model = load("mar_target")
  num_iter, scale, guidance_fn, temperature, conditional = SAMPLE_CASES[case]
  condition = labels(rows["labels"])
  if not conditional:
    condition = model.fns.null_condition(model.params, condition)
  out = masked_decode.generate_masked(
    model.fns, model.params, jax.random.key(0), condition, num_iter=num_iter, scale=scale, guidance_fn=guidance_fn,
    temperature=temperature, order=generation_order(rows["orders"]), noise=_noise(rows), num_buckets=2,
  )  # fmt: skip
  rows.add(f"{case}_latents", channels_first(unpatchify(orders.to_raster(out.tokens, out.report.order), 1)))
  return rows.rows


def mar_sample_steps(cases: str = "abcd") -> list[Row]:
  """The same generations iteration by iteration: tokens, masks and guidance after each."""
  rows = Rows("mar_sample")
  model = load("mar_target")
  order, noise = generation_order(rows["orders"]), _noise(rows)
  batch, length = order.shape
  slot = jnp.broadcast_to(jnp.arange(length)[None], order.shape)
  for case in cases:
    num_iter, scale, guidance_fn, temperature, conditional = SAMPLE_CASES[case]
    condition = labels(rows["labels"])
    if not conditional:
      condition = model.fns.null_condition(model.params, condition)
    tokens, before, predicted, scales, after = jnp.zeros((batch, length, 4)), [], [], [], []
    for iteration in unmasking.iterations(length, num_iter):
      known, count = iteration.known, iteration.count
      s = None if scale is None else guidance_fn(jnp.float32(iteration.masked), length, jnp.float32(scale))
      tokens, _ = step(
        model.fns, model.params, tokens, order, jnp.asarray([known]), jnp.asarray([count]), condition, noise, s,
        jnp.float32(temperature), slots=length, width=6,
      )  # fmt: skip
      after.append(orders.to_raster(tokens, order))
      before.append(orders.to_raster(slot >= known, order))
      predicted.append(orders.to_raster((slot >= known) & (slot < known + count), order))
      scales.append(1.0 if s is None else s)
    rows.add(f"{case}_mask_len", np.asarray(unmasking.mask_lengths(length, num_iter)))
    rows.add(f"{case}_tokens", np.stack(after))
    rows.add(f"{case}_mask_before", np.stack(before))
    rows.add(f"{case}_predicted", np.stack(predicted))
    rows.add(f"{case}_cfg_iter", np.asarray(scales), 1e-6)
  return rows.rows


def mar_sample() -> list[Row]:
  """Complete generations, by the compiled program and iteration by iteration."""
  rows = Rows("mar_sample", "orders labels init_noise step_noise")
  rows.rows = [row for case in SAMPLE_CASES for row in mar_sample_program(case)] + mar_sample_steps()
  return rows.done()


# Training.


def loss() -> list[Row]:
  """The training loss, per row and whole, and its gradients."""
  rows = Rows("mar_loss", "latents labels orders mask_rate t noise param_names")
  model = load("mar_target")
  tokens = patchify(channels_last(rows["latents"]), 1)
  batch, length, width = tokens.shape
  known = length - num_masked(rows["mask_rate"], length)
  shape = (-1, batch, length)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(params):
    return mar_loss(
      model.fns, params, tokens, generation_order(rows["orders"]), known[None], labels(rows["labels"]),
      jnp.asarray(rows["t"]).reshape(shape), jnp.asarray(rows["noise"]).reshape(*shape, width), slots=8,
    )  # fmt: skip

  (value, per_row), grads = run(model.params)
  rows.add("loss", value, 1e-6)
  rows.add("mse", per_row.mse.reshape(-1))
  rows.add("vb", per_row.vb.reshape(-1))
  state_dict = engine.to_state_dict(checkpoints.flatten(grads), MAR_FAMILY)
  rows.add("grad_norm", np.asarray([np.linalg.norm(state_dict[name]) for name in rows["param_names"]]), 1e-6)
  for name in [name for name in rows.arrays if name.startswith("grad:")]:
    rows.add(name, state_dict[name.removeprefix("grad:")], 1e-6)
  return rows.done()


# The autoencoder.


def vae() -> list[Row]:
  """Encoder, posterior and decoder."""
  rows = Rows("vae", "x eps z")
  model = load("vae")
  encode, decode = jax.jit(model.fns.encode), jax.jit(model.fns.decode)
  posterior = encode(model.params, channels_last(rows["x"]))
  rows.add("moments", channels_first(jnp.concatenate([posterior.mean, posterior.log_variance], axis=-1)))
  rows.add("mean", channels_first(posterior.mean))
  rows.add("std", channels_first(posterior.std))
  scaled = LATENT_SCALE * posterior.sample(channels_last(rows["eps"]))
  rows.add("scaled_latent", channels_first(scaled))
  rows.add("recon", channels_first(decode(model.params, scaled / LATENT_SCALE)))
  rows.add("decode_z", channels_first(decode(model.params, channels_last(rows["z"]))))
  return rows.done()


# Continuous speculative decoding: densities and couplings.


def cspd() -> list[Row]:
  """The released runner, rebuilt from the pieces: two models with shared noise, densities, acceptance, resampling."""
  rows = Rows("cspd", " ".join(f"v{k}_{name}" for k in range(3) for name in ("u", "prop_noise", "prop_u")))
  sample = Rows("mar_sample")
  noise, order, condition = _noise(sample), generation_order(sample["orders"]), labels(sample["labels"])
  num_iter, gamma, prefill, scale = 8, 2, 0.25, jnp.float32(2.0)
  target, draft = load("mar_target"), load("mar_draft")
  batch, length = order.shape
  schedule = unmasking.iterations(length, num_iter)

  def run(model, tokens, first, last):
    """Tokens of the slots ``first .. last`` in one iteration, with the summaries of their chains."""
    tokens, chain = step(
      model.fns, model.params, tokens, order, jnp.asarray([first]), jnp.asarray([last - first]), condition, noise, scale,
      jnp.float32(1.0), slots=length, width=last - first, record=True,
    )  # fmt: skip
    return tokens, chain.token, ddpm.summarize(chain.distributions, jnp.float32(1.0))

  join = lambda parts: jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)
  tokens, drafts, begin, number = jnp.zeros((batch, length, 4)), [], None, 0
  for iteration in schedule:
    first, last = iteration.known, iteration.known + iteration.count
    if iteration.index <= prefill * num_iter:
      tokens, _, _ = run(target, tokens, first, last)
      continue
    begin = first if begin is None else begin
    tokens, token, summary = run(draft, tokens, first, last)
    drafts.append((token, summary))
    if iteration.index % gamma and iteration.index < num_iter - 1:
      continue
    x, q = join(drafts)
    _, _, p = run(target, tokens, begin, last)
    # The stored arrays list the positions of a row in ascending order.
    by_position = jnp.argsort(order[:, begin:last], axis=1)
    position = lambda leaf, at=by_position: orders.to_generation_order(leaf, at).reshape(-1, *leaf.shape[2:])
    x, q, p = (jax.tree.map(position, part) for part in (x, q, p))
    tokens = _check_verification(rows, f"v{number}_", x, q, p, tokens, order, begin, last, by_position)
    drafts, begin, number = [], None, number + 1
  rows.add("num_verifications", np.asarray(number))
  rows.add("latents", channels_first(unpatchify(orders.to_raster(tokens, order), 1)))
  return rows.done()


def _check_verification(
  rows: Rows, prefix: str, x, q: ChainSummary, p: ChainSummary, tokens, order, begin, last, by_position
) -> jax.Array:
  """One verification as released; returns the tokens with the written values."""
  rows.add(f"{prefix}draft", x)
  for side, distribution in (("q", q), ("p", p)):
    rows.add(f"{prefix}{side}_mean", distribution.mean)
    rows.add(f"{prefix}{side}_std", jnp.exp(distribution.log_std))
    rows.add(f"{prefix}{side}_sumlogstd", distribution.sum_log_std)
  log_judge = np.asarray(gaussian_path.released_log_ratio(x, p, q))
  rows.arrays[f"{prefix}judge"] = np.log(rows[f"{prefix}judge"])
  rows.add(f"{prefix}judge", log_judge, 1e-3)
  accepted = np.log(rows[f"{prefix}u"]) < log_judge
  rows.add(f"{prefix}accepted", accepted)

  out, taken, tries = np.where(accepted[:, None], x, 0.0), accepted.copy(), 0
  alphas = []
  for normals, u in zip(rows[f"{prefix}prop_noise"], rows[f"{prefix}prop_u"], strict=True):
    proposal = p.mean + jnp.exp(p.log_std) * normals
    alpha = np.asarray(gaussian_path.residual_accept_prob(proposal, p, q, -gaussian_path.log_sigma_ratio(p, q)))
    alphas.append(alpha)
    new = ~accepted & (u < alpha)
    out = np.where(new[:, None], proposal, out)
    taken, tries = taken | new, tries + 1
  assert taken.all()
  rows.add(f"{prefix}prop_alpha", np.stack(alphas))
  rows.add(f"{prefix}num_tries", np.asarray(tries))
  rows.add(f"{prefix}out", out)
  block = jnp.asarray(out).reshape(order.shape[0], last - begin, -1)
  back = jax.vmap(lambda values, at: jnp.zeros_like(values).at[at].set(values))(block, by_position)
  return tokens.at[:, begin:last].set(back)


def coupling() -> list[Row]:
  """Exact couplings with given randomness."""
  rows = Rows("coupling", "mu_q mu_p sd_q sd_p z u w xi_p prop_z prop_u")
  mu_q, mu_p, sd_q, sd_p, z, w, xi_p = (jnp.asarray(rows[n]) for n in "mu_q mu_p sd_q sd_p z w xi_p".split())
  log_u = jnp.log(jnp.asarray(rows["u"]))
  normals, uniforms = jnp.asarray(rows["prop_z"]), jnp.asarray(rows["prop_u"])
  maximal = jax.jit(lambda: couplings.maximal(
    mu_q, sd_q, mu_p, sd_p, z, log_u, lambda k: (normals[k], jnp.log(uniforms[k])), max_tries=len(normals)
  ))()  # fmt: skip
  found = {
    "reflect": couplings.reflect(mu_q, mu_p, sd_p, z, log_u),
    "split": couplings.split(mu_q, sd_q, mu_p, sd_p, z, w, xi_p, log_u),
    "maximal": maximal,
  }
  for name, coupled in found.items():
    rows.add(f"{name}_y", coupled.x)
    rows.add(f"{name}_accept", coupled.accepted)
    rows.add(f"{name}_logratio", coupled.log_ratio)
  rows.add("maximal_x", mu_q + sd_q * z)
  rows.add("maximal_tries", maximal.num_tries)
  return rows.done()


FAST_CHECKS = (tables, schedule, forward, diffloss_net, p_mean_variance, diffloss_sample, vae, coupling)
SLOW_CHECKS = (loss, mar_sample, cspd)

__all__ = ["FAST_CHECKS", "SLOW_CHECKS", "Row", "max_error"]
