"""Failures in the log: type and place, without received data."""

import logging

from jaxspec.serving.server.failure_log import log_failure


def test_neither_its_words_nor_those_of_its_cause_are_logged(caplog):
  def fails(prompt):
    try:
      int(prompt)
    except ValueError as error:
      raise RuntimeError(f"no prompt: {prompt}") from error

  prompt = "my prompt in " + "words"  # lines of code are logged, values are not
  with caplog.at_level(logging.ERROR):
    try:
      fails(prompt)
    except RuntimeError as error:
      log_failure(logging.getLogger("server"), "A call of Open failed", error)
  assert "A call of Open failed" in caplog.text and "RuntimeError" in caplog.text
  assert "test_failure_log.py" in caplog.text and ", in fails" in caplog.text
  assert prompt not in caplog.text
