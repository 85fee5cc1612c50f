"""Seconds of compiling at first calls."""

import time

import jax
import pytest

from jaxspec.run.compile_clock import CompileClock, compile_clock


def test_nested_spans_count_once():
  clock = CompileClock()
  clock.add(1.0, 2.0)
  clock.add(2.5, 3.0)
  clock.add(0.5, 4.0)  # the program around both
  clock.add(3.9, 5.0)  # rounding of clocks: spans may touch
  assert clock.seconds == pytest.approx(4.5)


def test_first_calls_only():
  double = jax.jit(lambda x: jax.jit(lambda y: 2 * y)(x) + 1)
  began = time.perf_counter()
  with compile_clock() as first:
    double(3.0)
  assert 0 < first.seconds <= time.perf_counter() - began
  with compile_clock() as second:
    double(4.0)
  assert second.seconds == 0
  jax.jit(lambda x: x - 7)(1.0)
  assert second.seconds == 0  # after the context
