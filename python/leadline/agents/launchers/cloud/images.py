"""Which images fleets boot from unless the user names one, and which user an image has for SSH. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from leadline.errors import InputError

ARCHITECTURES = ("x86_64", "aarch64")
"""Those that there are agents for."""
DEB_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's words for them, which are in the names of images."""
_USERS = {
    "debian": "debian", "ubuntu": "ubuntu", "al2023": "ec2-user", "amzn": "ec2-user", "amazon": "ec2-user",
    "rhel": "ec2-user", "fedora": "fedora", "rocky": "rocky", "almalinux": "almalinux", "centos": "cloud-user",
    "opensuse": "opensuse", "alpine": "alpine", "arch": "arch",
}  # fmt: skip
"""Maps a part of an image's name to the user that cloud-init makes there."""
_VERSIONS = re.compile(r"debian[-_ ]*(?:gnu[-_/ ]*linux[-_ ]*)?(1[2-9])\b|ubuntu\D*(2[2-9]\.04)", re.IGNORECASE)
_CODE_NAMES = {"bookworm": "12", "trixie": "13", "jammy": "22.04", "noble": "24.04"}


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who publishes images on EC2, and how their names are made."""

    name: str
    account: str
    """Its AWS account: images of the same name by others are not taken."""
    patterns: tuple[str, ...]
    """Names of images, the newest release first; `{arch}` is Debian's word."""
    user: str


PUBLISHERS = (
    Publisher("Debian", "136693071363", ("debian-13-{arch}-2*", "debian-12-{arch}-2*"), "admin"),
    Publisher(
        "Ubuntu",
        "099720109477",
        (
            "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{arch}-server-*",
            "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-{arch}-server-*",
        ),
        "ubuntu",
    ),
)
"""Those that are searched, in this order."""


def find_user(image_name: str, provider: str) -> str:
    """The user of an image, by its name.

    Raises:
        InputError: the name has no distribution that is known.
    """
    words = image_name.lower()
    for part, user in _USERS.items():
        if part in words:
            # Debian's own images have another user on EC2 than elsewhere.
            return "admin" if (part, provider) == ("debian", "aws") else user
    raise InputError(
        f"the user of the image {image_name} is not known", hint="name it with --user, as in --user debian"
    )


def is_for(image_name: str, arch: str) -> bool:
    """Whether an image's name names no other architecture than this."""
    words = image_name.lower()
    named = [one for one, word in DEB_ARCH.items() if word in words or one in words]
    return not named or arch in named


def rank_cloud_image(image_name: str) -> tuple[int, float] | None:
    """A key that sorts images of Debian and Ubuntu by their names: Debian's above Ubuntu's, newer releases above older;
    None for any other image."""
    found = _VERSIONS.search(image_name)
    words = image_name.lower()
    version = next((version for name, version in _CODE_NAMES.items() if name in words), None)
    if found:
        version = found[1] or found[2]
    if version is None or "daily" in words:
        return None
    return int("ubuntu" not in words and float(version) < 20), float(version)
