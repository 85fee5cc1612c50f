"""The training loop: exact resume, logs, evaluation, divergence."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns
from jaxspec.training import train_state
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.run_log import read_metrics
from jaxspec.training.train_loop import LoopConfig, TrainingDiverged, fit
from jaxspec.training.train_step import make_train_step
from jaxspec.training.vq_loss import VQObjective, init_usage, restart_dead_codes, vq_loss_fn

MODEL = PatchVQConfig(image_size=8, widths=(4,), encoder_blocks=(1,), decoder_blocks=(1,), num_codes=8, code_dim=3)
STEPS = 6


@pytest.fixture(scope="module")
def tiny_run():
  """A tokenizer with restarts of dead codes and a running mean, so that every part of the state matters."""
  fns = patch_vq_fns(MODEL)
  objective = VQObjective(restart_every=2, restart_until=5, restart_below=20.0)
  optimizer = make_optimizer(OptimizerConfig(learning_rate=1e-2, warmup_steps=1), STEPS)
  step = make_train_step(
    vq_loss_fn(fns, objective),
    optimizer,
    ema_decay=0.9,
    ema_start=2,
    seed=3,
    after_update_fn=restart_dead_codes(objective),
  )
  shapes = jax.eval_shape(fns.init, jax.random.key(0))

  def create():
    generator = np.random.default_rng(0)
    random = lambda leaf: jax.device_put(generator.normal(size=leaf.shape, scale=0.3).astype(leaf.dtype))
    return train_state.create(jax.tree.map(random, shapes), optimizer, init_usage(8, 3))

  batch_fn = lambda i: {"images": np.random.default_rng((3, i)).integers(0, 256, (2, 8, 8, 3), np.uint8)}
  return create, step, batch_fn


def _fit(tiny_run, path, **kwargs):
  create, step, batch_fn = tiny_run
  config = LoopConfig(**(dict(num_steps=STEPS, log_every=1, checkpoint_every=2) | kwargs.pop("loop", {})))
  return fit(config, create(), step, batch_fn, run_dir=path, **kwargs)


def _losses(path):
  return [(r["step"], r["loss"]) for r in read_metrics(path / "metrics.jsonl")]


def test_resume_is_exact(tiny_run, tmp_path):
  straight = _fit(tiny_run, tmp_path / "straight", loop=dict(checkpoint_every=0))  # the last state is always saved
  # Killed after 3 updates; the newest checkpoint is that of step 2, so step 2 is done and logged again.
  _fit(tiny_run, tmp_path / "killed", loop=dict(stop_after=3))
  assert [step for step, _ in _losses(tmp_path / "killed")] == [0, 1, 2]
  with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
    file.write('{"step": 3, "lo')  # a line truncated by the kill
  resumed = _fit(tiny_run, tmp_path / "killed")
  assert _losses(tmp_path / "killed") == _losses(tmp_path / "straight")
  assert [step for step, _ in _losses(tmp_path / "straight")] == list(range(STEPS))
  for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
    np.testing.assert_array_equal(a, b)
  assert any(jnp.any(a != b) for a, b in zip(jax.tree.leaves(straight.params), jax.tree.leaves(straight.ema)))


@pytest.mark.slow
def test_a_run_stops_after_some_seconds(tiny_run, tmp_path):
  """It saves at the stop, between two checkpoints, and resumes to the weights of one run."""
  stopped = _fit(tiny_run, tmp_path / "parts", loop=dict(stop_after_s=0.0))
  assert int(stopped.step) == 1
  later = _fit(tiny_run, tmp_path / "parts", resume=True, loop=dict(stop_after_s=600.0))
  straight = _fit(tiny_run, tmp_path / "straight", loop=dict(checkpoint_every=0))
  assert int(later.step) == STEPS
  jax.tree.map(np.testing.assert_array_equal, later.params, straight.params)


@pytest.mark.slow
def test_a_finished_run_does_nothing(tiny_run, tmp_path):
  first = _fit(tiny_run, tmp_path)
  before = (tmp_path / "metrics.jsonl").read_bytes()
  again = _fit(tiny_run, tmp_path, report_fn=lambda *args: pytest.fail("no update is missing"))
  assert (tmp_path / "metrics.jsonl").read_bytes() == before
  np.testing.assert_array_equal(again.ema["codebook"], first.ema["codebook"])
  with pytest.raises(ValueError, match="resume"):
    _fit(tiny_run, tmp_path, resume=False)
  with pytest.raises(ValueError, match=f"at most 2 updates in .*, we instead got one of {STEPS}"):
    _fit(tiny_run, tmp_path, loop=dict(num_steps=2))


@pytest.mark.slow
def test_evaluation_samples_and_reports(tiny_run, tmp_path):
  seen = []
  counter = itertools.count()
  _fit(
    tiny_run,
    tmp_path,
    loop=dict(eval_every=4),
    eval_fn=lambda state: {"figure": int(state.step) + next(counter) / 10},
    sample_fn=lambda state, path: path.write_text(str(int(state.step))),
    report_fn=lambda step, num_steps, metrics, rate: seen.append((step, num_steps, sorted(metrics), rate > 0)),
  )
  records = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
  assert records == [{"step": 4, "figure": 4.0}, {"step": 6, "figure": 6.1}]
  assert sorted(p.name for p in (tmp_path / "samples").iterdir()) == ["0000004.png", "0000006.png"]
  assert [entry[0] for entry in seen] == [1, 2, 3, 4, 5, 6]
  assert {"loss", "grad_norm", "psnr", "used"} <= set(seen[0][2])
  kept = sorted(int(p.name) for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit())
  assert kept == [4, 6]


def test_divergence_stops_the_run(tmp_path):
  optimizer = optax.sgd(1.0)
  loss_fn = lambda params, extra, batch, key: (jnp.sum(params["w"] / batch["x"]), ({}, extra))
  step = make_train_step(loss_fn, optimizer)
  state = train_state.create({"w": jnp.ones((2,))}, optimizer)
  batch_fn = lambda i: {"x": np.full(2, 1.0 if i < 2 else 0.0, np.float32)}
  config = LoopConfig(num_steps=5, log_every=1, checkpoint_every=0)
  with pytest.raises(TrainingDiverged, match="step 2"):
    fit(config, state, step, batch_fn, run_dir=tmp_path)
  assert len(read_metrics(tmp_path / "metrics.jsonl")) == 3


def test_a_bad_loop_config_is_an_error():
  with pytest.raises(ValueError, match="at least one step"):
    LoopConfig(num_steps=0)
