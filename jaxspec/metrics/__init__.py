"""Figures of merit of a decode and of a rule."""
