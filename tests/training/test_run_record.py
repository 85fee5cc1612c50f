"""The record of a run: the folder of one training is not continued by another."""

import dataclasses

import pytest

from jaxspec.training import run_record
from jaxspec.training.distillation.eagle_student import EagleSettings


def test_a_run_is_resumed_with_its_settings_only(tmp_path):
  settings = EagleSettings()
  begin = lambda settings, data=1, resume=True: run_record.begin(tmp_path, "eagle", settings, {"of": data}, resume=resume)
  begin(settings)
  begin(dataclasses.replace(settings, loop=dataclasses.replace(settings.loop, eval_every=7, stop_after=3)))
  with pytest.raises(ValueError, match="resume .* with its noise 0.1, we instead got 0.2: choose another --run-dir"):
    begin(dataclasses.replace(settings, noise=0.2))
  with pytest.raises(ValueError, match="with its of 1, we instead got 2"):
    begin(settings, 2)
  with pytest.raises(ValueError, match="new run folder"):
    begin(settings, resume=False)
  (tmp_path / "run.json").write_text("{")
  with pytest.raises(ValueError, match="Corrupt .*run.json"):
    begin(settings)
