"""The fixtures of this folder are in `chromium_page`."""

from chromium_page import chromium, open_page

__all__ = ["chromium", "open_page"]
