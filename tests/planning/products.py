"""Counts the products of a traced function: two operations for each multiply and add."""

from __future__ import annotations

import math

import jax


def operations(function, *args) -> int:
  """Operations of all products of matrices in a function; loops count once per iteration."""
  return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr) -> int:
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name == "dot_general":
      (contracted, _), _ = equation.params["dimension_numbers"]
      left = equation.invars[0].aval.shape
      total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
    times = equation.params["length"] if equation.primitive.name == "scan" else 1
    for value in equation.params.values():
      for inner in value if isinstance(value, (tuple, list)) else (value,):
        inner = getattr(inner, "jaxpr", inner)
        if hasattr(inner, "eqns"):
          total += times * _count(inner)
  return total
