"""Figures about decoded tokens and pictures."""
