"""Figures of merit of a decode, of an acceptance rule, and of sets of images."""
