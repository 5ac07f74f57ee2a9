"""Whether SSH servers answer: by their first line, to all addresses at once. Logs in nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

SSH_PORT = 22
_PROBE_TIMEOUT_S = 3.0


def find_answering(addresses: Sequence[str], port: int = SSH_PORT) -> set[str]:
    """Ask all addresses at once. Returns those at which an SSH server sent its version line within 3 s."""
    return asyncio.run(_probe_all(addresses, port))


async def _probe_all(addresses: Sequence[str], port: int) -> set[str]:
    answers = await asyncio.gather(*(_has_answer(address, port) for address in addresses))
    return {address for address, is_there in zip(addresses, answers, strict=True) if is_there}


async def _has_answer(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                # RFC 4253, 4.2: the version line begins with "SSH-".
                return await reader.readexactly(4) == b"SSH-"
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return False
