"""Trainings of the shipped networks: ``python -m experiments.train.NAME --help``."""
