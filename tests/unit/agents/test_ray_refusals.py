"""What a Ray driver says of a cluster that cannot be used, from what Ray says."""

from __future__ import annotations

from leadline.agents.launchers.ray_driver.cluster import explain_actor_end, refuse_connection

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.11.7
This process on node 10.0.0.5 was started with:
    Ray: 2.59.0
    Python: 3.12.9
"""
DEAD = """The actor died unexpectedly before finishing this task.
\tclass_name: Host
\tactor_id: 5bd4cc8ec0e0a8a7e6a1e9d901000000
\tip: 10.0.0.6
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) it was killed"""


def test_versions_that_differ_are_named_once() -> None:
    refusal = refuse_connection(RuntimeError(MISMATCH), "10.0.0.1:6379", "the Ray cluster at 10.0.0.1:6379")
    assert refusal.message == (
        "the Ray cluster at 10.0.0.1:6379 runs Ray 2.60.0 on Python 3.11.7, and this is Ray 2.59.0 on Python 3.12.9; "
        "both must be the same, but for Python's patch number"
    )
    assert refusal.hint == "name the Python of the cluster in LEADLINE_RAY_PYTHON"


def test_machine_without_cluster_is_named() -> None:
    refusal = refuse_connection(ConnectionError("Could not find any running Ray instance."), None, "the Ray cluster")
    assert (refusal.message, refusal.code) == ("no Ray cluster runs on this machine", "input")


def test_any_other_failure_is_one_line() -> None:
    refusal = refuse_connection(RuntimeError("first\n  second\n" * 100), "h:1", "the Ray cluster at h:1")
    assert refusal.message.startswith("the Ray cluster at h:1 cannot be used: first second first")
    assert len(refusal.message) < 500 and "\n" not in refusal.message


def test_end_of_an_actor_is_without_identifiers_and_advice() -> None:
    assert explain_actor_end(DEAD) == (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "Worker unexpectedly exits with a connection error code 2. End of file."
    )
