"""Families of networks: how each reads prompts, and what its tokens become. `register` adds one of your own."""

from jaxspec.models.registry import FAMILIES, FamilySpec, register

__all__ = ["FAMILIES", "FamilySpec", "register"]
