"""Texts of LoadRunner's files: UTF-8, or the Windows code page of the machine that recorded them. Pure."""

from __future__ import annotations


def decode(content: bytes, locale: str = "") -> str:
    """The text of a file. What is not UTF-8 is in the code page of the script's locale, else in the likelier one."""
    return content.decode(find_encoding(content, locale), "replace")


def find_encoding(content: bytes, locale: str = "") -> str:
    """The name of a file's encoding."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        known = _BY_LANGUAGE.get(locale.partition("-")[0].lower())
        return known or _guess(content)
    return "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"


def _guess(content: bytes) -> str:
    """Small Cyrillic letters are 0xE0 and above in cp1251; GBK's frequent characters begin below 0xD8."""
    high = [byte for byte in content if byte >= 0x80]
    small = sum(byte >= 0xE0 for byte in high)
    if 2 * small > len(high):
        return "cp1251"
    try:
        content.decode("gbk")
    except UnicodeDecodeError:
        return "cp1251" if 3 * small > len(high) else "cp1252"
    return "gbk"


_BY_LANGUAGE = {"ru": "cp1251", "uk": "cp1251", "be": "cp1251", "bg": "cp1251", "zh": "gbk", "en": "", "de": "cp1252"}
