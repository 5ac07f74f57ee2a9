"""The parameters of a stack in a plan: its tiers, in the order in which a request meets them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Count, DurationMs, PlanModel, SomeItems, rule, validation_error
from leadline.plan.sut import BaseSut

KeepAlive = Literal["http-keep-alive", "http-server-close", "httpclose"]
TlsVersions = Literal["off", "1.2", "1.3", "1.2-1.3"]
TierHost = Literal["gateway", "server"]

MAX_WORKERS = 99
"""Each worker has a port, and a tier a hundred of them."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")
_CIPHERS = re.compile(r"[A-Za-z0-9_:+!@=-]+")


def _tier_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        hint = "use up to 16 small letters, digits and '-', a letter first"
        raise validation_error(f"{text!r} is not a tier's name", hint=hint)
    return text


def _program(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("a program's name or path is empty or has control characters")
    return text


def _ciphers(text: str) -> str:
    if _CIPHERS.fullmatch(text) is None:
        hint = "write OpenSSL's names, such as ECDHE-RSA-AES128-GCM-SHA256 or TLS_AES_128_GCM_SHA256, joined by ':'"
        raise validation_error(f"{text!r} is not a list of ciphers", hint=hint)
    return text


def _check_path(text: str) -> str:
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or " " in text:
        raise validation_error(f"{text!r} is not a path", hint="as in /, or /health")
    return text


def _file_name(files: dict[str, str]) -> dict[str, str]:
    for name in files:
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name) is None:
            raise validation_error(f"{name!r} is not a file's name", hint="without folders, as in nginx.conf")
    return files


def _version_text(value: Any) -> Any:
    """YAML reads 1.2 as a number."""
    return str(value) if isinstance(value, float) else value


TierName = Annotated[str, AfterValidator(_tier_name)]
Program = Annotated[str, AfterValidator(_program)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Tier(PlanModel):
    """The keys of every tier."""

    name: TierName
    """What results call it, and the word for it in axes: `sut.tiers.NAME.KEY`."""
    cpus: Count | None = None
    """Number of CPUs that its processes may use; null: all of its host. Tiers have different ones as far as there are
    enough."""
    host: TierHost | None = None
    """The host that it runs on; null: the gateway for the first of several tiers, the server for the others."""


class HaproxyTier(Tier):
    """HAProxy, which passes requests on to the workers of the next tier in turn."""

    kind: Literal["haproxy"] = "haproxy"
    binary: Program = "haproxy"
    """The daemon, by name (looked up in PATH) or by path."""
    nbthread: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of threads; null: as many as `cpus`, or what HAProxy chooses."""
    tls: Annotated[TlsVersions, BeforeValidator(_version_text)] = "off"
    """Versions of TLS that clients may use, as in 1.2-1.3; off: plain HTTP."""
    ciphers: Annotated[str, AfterValidator(_ciphers)] | None = None
    """Cipher suites, by OpenSSL's names, joined by `:`; null: HAProxy's own. Those of TLS 1.3 begin with TLS_."""
    certificate: Literal["ecdsa", "rsa"] = "rsa"
    """Key of its certificate: ECDSA P-256 or RSA 2048. It is made for the run; no client can verify it."""
    keep_alive: KeepAlive = "http-keep-alive"
    """What becomes of connections after an answer: kept on both sides, closed to the next tier, or on both sides."""
    reuse: Literal["never", "safe", "aggressive", "always"] = "safe"
    """Whether an idle connection to the next tier serves other clients' requests (`http-reuse`)."""
    log_every: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Log one of this number of requests, with its times; 0: none. Results have times of tiers only from logged
    requests."""

    @rule
    def _ciphers_need_tls(self) -> Iterator[PydanticCustomError]:
        if self.ciphers is None or self.tls == "off":
            if self.ciphers is not None:
                yield validation_error("ciphers without TLS", at=("ciphers",), hint="write tls: 1.2-1.3 too")
            return
        is_new = [one.startswith("TLS_") for one in self.ciphers.split(":")]
        if (self.tls == "1.3" and not all(is_new)) or (self.tls == "1.2" and any(is_new)):
            hint = "names of TLS 1.3 begin with TLS_, those of 1.2 do not"
            yield validation_error(f"{self.ciphers} is not possible with tls: {self.tls}", at=("ciphers",), hint=hint)


class NodeTier(Tier):
    """The bank's service, a small program of Leadline's for Node.js. It needs a redis tier behind it."""

    kind: Literal["node"] = "node"
    binary: Program = "node"
    """Node.js, by name (looked up in PATH) or by path."""
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 1
    """Number of processes, each with a port of its own. More than one need a haproxy tier right before them, which asks
    them in turn."""
    keep_alive_timeout_ms: DurationMs = Field(default=75_000, validation_alias="keep_alive_timeout")
    """Time after which an idle connection is closed. Node's own default, 5 s, closes connections that HAProxy is about
    to use again."""
    accounts: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Number of accounts that it creates."""


class RedisTier(Tier):
    """Redis, without persistence."""

    kind: Literal["redis"] = "redis"
    binary: Program = "redis-server"
    """The daemon, by name (looked up in PATH) or by path."""
    io_threads: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of threads that read and write sockets; commands are always executed by one."""


class CommandTier(Tier):
    """Any daemon that stays in the foreground."""

    kind: Literal["command"] = "command"
    argv: SomeItems[Program]
    """The command line. In it and in files, "{{port}}", "{{address}}" and "{{folder}}" stand for the tier's own port,
    address and folder, "{{next}}" for ADDRESS:PORT of the next tier's first worker."""
    port: Port | None = None
    """The port that it listens on; null: one that Leadline chooses."""
    files: Annotated[dict[str, str], AfterValidator(_file_name)] = Field(default={})
    """Files to write into its folder before it starts: name to text."""
    tls: bool = False
    """Whether it speaks TLS to the tier before it, or to clients if it is the first one."""


AnyTier = Annotated[HaproxyTier | NodeTier | RedisTier | CommandTier, Field(discriminator="kind")]
TIER_MODELS: tuple[type[Tier], ...] = (HaproxyTier, NodeTier, RedisTier, CommandTier)


class StackSut(BaseSut):
    """A stack of daemons that answers HTTP: each tier asks the next one."""

    kind: Literal["stack"] = "stack"
    tiers: SomeItems[AnyTier]
    """The daemons, in the order in which a request meets them."""
    check: Annotated[str, AfterValidator(_check_path)] = "/"
    """Path of the request that verifies the whole stack before a trial: its answer must have a status below 400."""

    @property
    def uses_tls(self) -> bool:
        """Whether clients speak TLS to the first tier."""
        first = self.tiers[0]
        return first.tls if isinstance(first, CommandTier) else isinstance(first, HaproxyTier) and first.tls != "off"

    def host_of(self, tier: Tier) -> TierHost:
        """The host that a tier runs on."""
        if tier.host is not None:
            return tier.host
        return "gateway" if tier is self.tiers[0] and len(self.tiers) > 1 else "server"

    @rule
    def _names_differ(self) -> Iterator[PydanticCustomError]:
        seen: set[str] = set()
        for index, tier in enumerate(self.tiers):
            if tier.name in seen:
                yield validation_error(
                    f"two tiers are called '{tier.name}'", at=("tiers", index, "name"), hint="rename one"
                )
            seen.add(tier.name)

    @rule
    def _tiers_fit(self) -> Iterator[PydanticCustomError]:
        if isinstance(self.tiers[0], RedisTier):
            yield validation_error("redis does not speak HTTP", at=("tiers", 0), hint="put a tier before it that does")
        before: Tier | None = None
        for index, (tier, behind) in enumerate(pairwise((*self.tiers, None))):
            at = ("tiers", index)
            if isinstance(tier, NodeTier) and tier.workers > 1 and not isinstance(before, HaproxyTier):
                text = f"the node tier '{tier.name}' has {tier.workers} workers, but only its first one would be asked"
                hint = "put a tier of kind haproxy right before it, or write workers: 1"
                yield validation_error(text, at=(*at, "workers"), hint=hint)
            before = tier
            if isinstance(tier, NodeTier) and not isinstance(behind, RedisTier):
                text = f"the node tier '{tier.name}' keeps its data in Redis"
                yield validation_error(text, at=at, hint="put a tier of kind redis right behind it")
            if isinstance(tier, HaproxyTier) and (behind is None or isinstance(behind, RedisTier)):
                text = f"the haproxy tier '{tier.name}' has no tier behind it that speaks HTTP"
                yield validation_error(text, at=at, hint="put one of kind node or command right behind it")
            if isinstance(tier, RedisTier) and behind is not None:
                text = f"the redis tier '{tier.name}' asks no other tier"
                yield validation_error(text, at=at, hint="make it the last one")
            if isinstance(tier, HaproxyTier) and isinstance(behind, HaproxyTier) and behind.tls != "off":
                text = f"the haproxy tier '{tier.name}' speaks plain HTTP to the next one"
                yield validation_error(text, at=at, hint=f"write tls: off in the tier '{behind.name}'")
