"""Settings of the training of the target of scenes, and runs in folders of other runs."""

import dataclasses
from pathlib import Path

import pytest

from experiments.train.command import main
from experiments.train.scene_target import SceneRun, get_config, init_params, train

SHIPPED = "checkpoints/scenes"


@pytest.mark.parametrize(
  "settings, message",
  [
    (dict(batch_size=0), "batch_size from 1, we instead got 0"), (dict(materials=()), "materials in flat"),
    (dict(materials=("flat", "stone")), "materials in flat, .*'stone'"), (dict(top_p=7.0), "top_p above 0"),
    (dict(first_image=-5), "first_image from 0"),
  ],
)  # fmt: skip
def test_settings_that_cannot_be(settings, message):
  with pytest.raises(ValueError, match=message):
    SceneRun(**settings)


def test_a_run_starts_from_networks_of_its_own_shape(tmp_path):
  """Fewer layers would leave weights unused, without a word."""
  run = dataclasses.replace(get_config("whole"), start_from=SHIPPED)
  fewer = dataclasses.replace(run, model=dataclasses.replace(run.model, num_layers=4))
  with pytest.raises(ValueError, match="the model of checkpoints/scenes.*differs in num_layers=4"):
    init_params(fewer, None)
  with pytest.raises(ValueError, match="vocabulary.json in start_from, we instead got runs/nothing"):
    train(dataclasses.replace(run, start_from="runs/nothing"), tmp_path)


def test_another_run_in_the_folder_is_refused(tmp_path, monkeypatch, capsys):
  """All configs have one default folder; going on with the weights of another run would export them under a wrong name."""
  done = []
  monkeypatch.chdir(tmp_path)

  def status_of(*words):
    monkeypatch.setattr("sys.argv", ["scene_target", *words])
    with pytest.raises(SystemExit) as ended:
      main(
        "Trains.", get_config, lambda run, folder, resume, export: done.append(folder), name_of=lambda run: "scenes-target"
      )
    return ended.value.code

  assert status_of() == 0 and done == [Path("runs/scenes-target")]
  assert status_of("--set", "seed=1") == 2 and len(done) == 1
  assert "Must resume runs/scenes-target with its seed 0, we instead got 1: choose another" in capsys.readouterr().err
  assert status_of("--set", "loop.log_every=3") == 0 and len(done) == 2
