"""Products of gradients and optimisers that read bfloat16 and add in float32, on a CPU.

``jax.default_matmul_precision("bfloat16")`` asks for this, and accelerators listen. On a CPU our networks write such
products out (`jaxspec.models.precision`), but not those of their gradients, nor those of an optimiser. So a traced function
is rewritten here. It pays on processors with units for bfloat16, such as AMX: compare ``python -m
experiments.train.scene_target --estimate`` with and without ``--set matmul_precision=float32``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

_FLOATS = {"float32", "bfloat16"}
_CALLS = {
  "jit",
  "pjit",
  "closed_call",
  "core_call",
  "custom_jvp_call",
  "custom_vjp_call",
  "custom_vjp_call_jaxpr",
  "checkpoint",
  "remat2",
}


def with_rounded_products(fn: Callable[..., Any]) -> Callable[..., Any]:
  """A function whose products with a float32 matrix read bfloat16 and add in float32.

  Differentiate first and round afterwards: ``with_rounded_products(jax.grad(loss))`` rounds the products of both passes.
  Products inside a ``lax.while_loop`` or ``lax.cond`` stay as they are; those of ``jit`` and ``lax.scan`` are rounded.

  Args:
    fn: function of pytrees of arrays.
  Returns:
    a function of the same arguments and results.
  """

  @functools.wraps(fn)
  def rounded(*args):
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    results = _run(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)

  return rounded


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
  """Values of a traced program, its products rounded."""
  values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
  for equation in jaxpr.eqns:
    inputs = [_value(values, variable) for variable in equation.invars]
    values.update(zip(equation.outvars, _outputs(equation, inputs), strict=True))
  return [_value(values, variable) for variable in jaxpr.outvars]


def _value(values: dict[Any, Any], variable: Any) -> Any:
  return variable.val if hasattr(variable, "val") else values[variable]  # literals hold their value


def _outputs(equation: Any, inputs: list[Any]) -> list[Any]:
  """Values of one equation."""
  primitive, params = equation.primitive, equation.params
  if primitive.name == "dot_general" and {value.dtype.name for value in inputs} <= _FLOATS:
    left, right = (value.astype(jnp.bfloat16) for value in inputs)
    product = jax.lax.dot_general(left, right, params["dimension_numbers"], preferred_element_type=jnp.float32)
    return [product.astype(equation.outvars[0].aval.dtype)]
  if primitive.name == "scan":
    return _scan(params, inputs)
  if primitive.name in _CALLS:
    inner = next(params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in params)
    return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
  results = primitive.bind(*inputs, **params)
  return results if primitive.multiple_results else [results]


def _scan(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
  first, body = params["num_consts"], params["jaxpr"]
  last = first + params["num_carry"]

  def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
    results = _run(body.jaxpr, body.consts, [*inputs[:first], *carry, *row])
    return results[: last - first], results[last - first :]

  carry, rows = jax.lax.scan(
    step, inputs[first:last], inputs[last:],
    length=params["length"], reverse=params["reverse"], unroll=params["unroll"],
  )  # fmt: skip
  return [*carry, *rows]
