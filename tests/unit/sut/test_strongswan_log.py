"""Lines as charon 5.9.8 writes them, and what they mean."""

from __future__ import annotations

import pytest

from leadline.sut.strongswan.log import gateway_cause, missing_plugins, own_cause, symptom, unstamped

REFUSED = "10[IKE] received AUTHENTICATION_FAILED notify error"
NO_ESP = "10[IKE] received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built"
NO_IKE = "09[IKE] received NO_PROPOSAL_CHOSEN notify error"
OFFERED = "15[CFG] received proposals: ESP:AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ"
CONFIGURED = "15[CFG] configured proposals: ESP:AES_GCM_16_128/NO_EXT_SEQ"
MISMATCH = "10[IKE] tried 1 shared key for 'gateway' - 'client1', but MAC mismatched"


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("02[CFG] algorithm 'bogus' not recognized", "it does not know an algorithm: algorithm 'bogus'"),
        ("00[LIB] failed to create TUN device: Operation not permitted", "it cannot create its tunnel device: failed"),
        (
            "16[IKE] EAP-MS-CHAPv2 failed with error ERROR_AUTHENTICATION_FAILURE: '(null)'",
            "the gateway refused its password: EAP-MS-CHAPv2",
        ),
        (
            "loading connection 'gw' failed: invalid value for: esp_proposals, config",
            "it refuses its configuration: load",
        ),
    ],
)
def test_a_daemons_own_line_and_its_meaning(line: str, begins: str) -> None:
    found = own_cause(["00[DMN] leadline: swanctl failed", line])
    assert found is not None and found.startswith(begins)


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        (REFUSED, "the gateway refused it: received AUTH"),
        (NO_ESP, "there is no common ESP proposal: "),
        (NO_IKE, "there is no common IKE proposal: "),
        ("13[IKE] retransmit 1 of request with message ID 0", "no answer from the gateway: retransmit 1"),
    ],
)
def test_what_a_client_sees_is_a_symptom_and_no_cause(line: str, begins: str) -> None:
    assert own_cause([line]) is None
    found = symptom([line])
    assert found is not None and found.startswith(begins)


def test_gateways_line_with_the_clients_name_is_its_cause() -> None:
    found = gateway_cause([MISMATCH], "client1", symptom([REFUSED]))
    assert found == "the pre-shared keys differ: tried 1 shared key for 'gateway' - 'client1', but MAC mismatched"
    assert gateway_cause([MISMATCH], "client11", symptom([REFUSED])) is None


def test_lines_without_a_name_count_only_for_a_client_that_was_refused() -> None:
    esn = "14[ESP]   IPsec SA: ESN not supported"
    assert gateway_cause([esn], "client1", None) is None
    found = gateway_cause([esn], "client1", symptom([NO_ESP]))
    assert found == "kernel-libipsec has no extended sequence numbers: IPsec SA: ESN not supported"


def test_differing_proposals_are_both_shown() -> None:
    found = gateway_cause([OFFERED, CONFIGURED], "client1", symptom([NO_ESP]))
    assert found == (
        "there is no common ESP proposal: it offers AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ, the gateway has"
        " AES_GCM_16_128/NO_EXT_SEQ"
    )
    assert gateway_cause([OFFERED, CONFIGURED], "client1", symptom([NO_IKE])) is None, "those are ESP's"
    assert gateway_cause([OFFERED], "client1", symptom([NO_ESP])) is None, "the other line is still on its way"


def test_missing_plugins_are_known_once_the_daemon_says_what_it_loaded() -> None:
    assert missing_plugins(["00[JOB] spawning 16 worker threads"], ["kernel-libipsec"]) is None
    said = ["00[LIB] loaded plugins: charon-systemd random kernel-netlink"]
    assert missing_plugins(said, ["random", "kernel-libipsec"]) == ("kernel-libipsec",)
    assert missing_plugins(said, ["random"]) == ()


@pytest.mark.parametrize(
    "line", [REFUSED, "00[DMN] leadline: [IKE] received AUTHENTICATION_FAILED notify error", REFUSED.replace("10", "7")]
)
def test_thread_and_subsystem_are_left_out(line: str) -> None:
    assert unstamped(line) == "received AUTHENTICATION_FAILED notify error"
