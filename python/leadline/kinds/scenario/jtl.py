"""Writes single requests and transactions of a scenario as JMeter writes its results: a JTL file in CSV, with the
columns of JMeter 5.6, so that programs that read those go on reading. Pure.

A request that had no response has JMeter's wording with our cause in place of a Java class. A followed redirect is one
row, without JMeter's further rows for each hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from leadline.contract.records import SampleBatch, SampleFailure, SampleOpening, SampleTransaction
from leadline.csv_rows import csv_text

COLUMNS = (
    "timeStamp", "elapsed", "label", "responseCode", "responseMessage", "threadName", "dataType", "success",
    "failureMessage", "bytes", "sentBytes", "grpThreads", "allThreads", "URL", "Latency", "IdleTime", "Connect",
)  # fmt: skip
HEADER = ",".join(COLUMNS) + "\n"
_NS_PER_MS = 1_000_000
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def jtl_text(samples: SampleBatch, groups: Sequence[str]) -> str:
    """The lines of a batch; `groups` are the names of the plan's groups in its order."""
    return csv_text(_rows(samples, groups), line_end="\n")


def _rows(samples: SampleBatch, groups: Sequence[str]) -> list[list[Any]]:
    numbers = {name: number for number, name in enumerate(groups, 1)}
    failures = {one["row"]: one for one in samples["failures"]}
    openings = {one["row"]: one for one in samples["openings"]}
    transactions = {one["row"]: one for one in samples["transactions"]}
    rows = []
    for row, name_index in enumerate(samples["name"]):
        name, group = samples["names"][name_index]["name"], samples["names"][name_index]["population"]
        failure, transaction = failures.get(row), transactions.get(row)
        first_ns = samples["first_byte_ns"][row]
        code, message, failure_message = _result(samples["status"][row], failure, transaction)
        rows.append([
            (samples["due_ns"][row] + samples["wall_offset_ns"]) // _NS_PER_MS,
            _ms(samples["elapsed_ns"][row]),
            name,
            code,
            message,
            f"{group} {numbers.get(group, 1)}-{samples['user'][row]}",
            "text" if transaction is None else "",
            "true" if failure is None else "false",
            failure_message,
            samples["received_bytes"][row],
            samples["sent_bytes"][row],
            samples["group_active"][row],
            samples["all_active"][row],
            samples["urls"][row] if transaction is None else "null",
            0 if first_ns is None else _ms((samples["before_sent_ns"][row] or 0) + first_ns),
            0 if transaction is None else _ms(transaction["waits_ns"]),
            _ms(_opening_ns(openings.get(row))),
        ])  # fmt: skip
    return rows


def _result(
    status: int | None, failure: SampleFailure | None, transaction: SampleTransaction | None
) -> tuple[str, str, str]:
    """The response's code and message, and what a check found."""
    if transaction is not None:
        message = f"Number of samples in transaction : {transaction['requests']}"
        return "200" if failure is None else "", f"{message}, number of failing samples : {transaction['failed']}", ""
    cause, text = ("", "") if failure is None else (failure["cause"], failure["message"])
    if status is None:
        return f"Non HTTP response code: {cause}", f"Non HTTP response message: {text}", ""
    # The status alone is no check's message.
    return str(status), _PHRASES.get(status, ""), "" if cause.startswith("status_") else text


def _opening_ns(opening: SampleOpening | None) -> int:
    return 0 if opening is None else (opening["dns_ns"] or 0) + opening["connect_ns"] + (opening["tls_ns"] or 0)


def _ms(nanoseconds: int) -> int:
    return (nanoseconds + _NS_PER_MS // 2) // _NS_PER_MS
