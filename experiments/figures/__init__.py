"""Figures of the documentation, from committed JSON where possible: ``python -m experiments.figures.NAME``."""
