"""Leadline measures a network at every layer and says whether the figure can be believed."""

__version__ = "0.1.0"
