"""Figures of the documentation, from committed JSON where that holds the numbers: ``python -m experiments.figures.NAME``."""
