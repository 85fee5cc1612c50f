"""Prints what cutting the encoder off behind the known tokens saves, against the plain scheme.

Command::

    python -m experiments.bench_mar

Random weights of a published size; one program per number of buckets. One bucket still makes use of the known schedule,
"plain" is what a masked network without generation order has to do: every iteration encodes all places. Expected: the
share that `jaxspec.models.mar.multiply_adds` predicts, printed beside the measured one; the diffusion head is common to
all and hides more of it the more steps it takes.
"""

from __future__ import annotations

import functools

import click
import jax
import jax.numpy as jnp

from jaxspec.decode import masked, measure, unmasking
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar import PUBLISHED_SIZES, MARConfig, mar_fns


@click.command()
@click.option("--size", type=click.Choice(list(PUBLISHED_SIZES)), default="MAR-B")
@click.option("--depth", type=int, help="Layers of encoder and decoder, if not the published ones.")
@click.option("--batch", default=1)
@click.option("--num-iter", default=64)
@click.option("--num-steps", default=25)
@click.option("--scale", type=float, help="Guidance scale.")
@click.option("--repeats", default=3)
def main(size: str, depth: int | None, batch: int, num_iter: int, num_steps: int, scale: float | None, repeats: int) -> None:
  """Times generations with 1, 2, 4 and 8 buckets and without any."""
  config = MARConfig.named(size, **({} if depth is None else dict(encoder_depth=depth, decoder_depth=depth)))
  fns = mar_fns(config)
  # An encoder that is told all tokens are known before the first iteration is the plain scheme's.
  plain = fns._replace(condition=_encode_everything(fns.condition, config.num_tokens))
  params = jax.jit(fns.init)(jax.random.key(0))
  condition = ClassLabels(jnp.arange(batch, dtype=jnp.int32))

  def run(model, num_buckets):
    kwargs = dict(num_iter=num_iter, num_steps=num_steps, scale=scale, num_buckets=num_buckets)
    return masked.generate_masked(model, params, jax.random.key(1), condition, **kwargs).tokens

  runs = {"plain": functools.partial(run, plain, 1)}
  runs |= {f"{n} buckets": functools.partial(run, fns, n) for n in (1, 2, 4, 8)}
  seconds = measure.alternate(runs, repeats)
  schedule = unmasking.iterations(config.num_tokens, num_iter)
  base = measure.Timing.of(seconds["plain"]).median
  print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {size}, {config.encoder_depth} layers, batch {batch}")
  print("| scheme | seconds | ratio to plain | predicted |\n|---|---|---|---|")
  everything = sum(fns.cost(config.num_tokens, max(i.count for i in schedule), num_steps) for _ in schedule)
  for name, times in seconds.items():
    cost = everything
    if name != "plain":
      cut = unmasking.buckets(schedule, int(name.split()[0]), masked._cost_fn(fns, num_steps))
      cost = sum(len(b.iterations) * fns.cost(b.slots, b.width, num_steps) for b in cut)
    median = measure.Timing.of(times).median
    print(f"| {name} | {median:.2f} | {median / base:.2f} | {cost / everything:.2f} |")


def _encode_everything(condition_fn, num_tokens: int):
  """The same conditions from an encoder over all places."""

  def condition(params, tokens, *args, **kwargs):
    padded = jnp.pad(tokens, ((0, 0), (0, num_tokens - tokens.shape[1]), (0, 0)))
    return condition_fn(params, padded, *args, **kwargs)

  return condition


if __name__ == "__main__":
  main()
