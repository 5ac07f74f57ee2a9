"""The arithmetic of loads that hosts share: shares are whole, even, and add up to the total."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from leadline.plan.portions import Portion, deal_amounts, most_hosts, portions
from leadline.plan.rate import RateStage

HOSTS = st.integers(1, 200)
TOTAL = st.integers(0, 10**12)


def on_each(hosts: int, clients: int | None = None) -> list[Portion]:
    return list(portions([f"h{number}" for number in range(hosts)], clients or hosts).values())


@given(TOTAL, HOSTS)
def test_shares_of_a_total_add_up_to_it_and_differ_by_one_at_most(total: int, hosts: int) -> None:
    shares = [portion.share(total) for portion in on_each(hosts)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True), "the first hosts have what is left over"


@given(st.integers(1, 10**9), HOSTS)
def test_shares_of_a_whole_rate_are_whole_and_add_up_to_it(rate: int, hosts: int) -> None:
    shares = [portion.share_of_rate(float(rate)) for portion in on_each(min(rate, hosts))]
    assert all(share == int(share) > 0 for share in shares)
    assert sum(shares) == rate


@given(st.integers(1, 10**9), st.integers(1, 65_507), HOSTS)
def test_shares_in_units_are_whole_units(units: int, unit: int, hosts: int) -> None:
    shares = [portion.share_of_rate(float(units * unit), unit) for portion in on_each(min(units, hosts))]
    assert all(share % unit == 0 for share in shares)
    assert sum(shares) == units * unit


@given(st.floats(1e-3, 1e9), HOSTS)
def test_shares_of_any_other_rate_are_equal(rate: float, hosts: int) -> None:
    shares = {portion.share_of_rate(rate + 0.5 if rate == int(rate) else rate) for portion in on_each(hosts)}
    assert len(shares) == 1
    (share,) = shares
    exact = Fraction(rate + 0.5 if rate == int(rate) else rate)
    assert abs(Fraction(share) * hosts - exact) <= exact / 2**52, "but for the rounding of a float"


@given(st.integers(1, 10_000), HOSTS)
def test_clients_are_dealt_to_hosts(clients: int, hosts: int) -> None:
    dealt = [portion.clients for portion in on_each(hosts, clients)]
    assert sum(dealt) == clients
    assert max(dealt) - min(dealt) <= 1


def test_three_of_fifty_hosts_have_a_client_more() -> None:
    assert [portion.clients for portion in on_each(50, 503)] == [11] * 3 + [10] * 47


AMOUNTS = st.fixed_dictionaries(
    {
        "number": st.integers(1, 10**9),
        "connections": st.integers(1, 10**6),
        "rate_per_s": st.one_of(st.integers(1, 10**6).map(float), st.just(None)),
    }
)


@given(AMOUNTS, HOSTS)
def test_no_host_that_takes_part_lacks_a_share(amounts: dict[str, float | None], hosts: int) -> None:
    taking_part = min(hosts, most_hosts(amounts, {}) or hosts)
    dealt = [deal_amounts(amounts, set(amounts), {}, portion) for portion in on_each(taking_part)]
    for name, total in amounts.items():
        if total is not None:
            assert all(one[name] > 0 for one in dealt)
            assert sum(one[name] for one in dealt) == total
    if taking_part < hosts:
        smallest = min(total for total in amounts.values() if total is not None)
        assert taking_part == smallest


@given(AMOUNTS, st.integers(1, 50))
def test_amounts_that_are_no_totals_are_those_of_all_clients_of_a_host(
    amounts: dict[str, float | None], clients: int
) -> None:
    own = deal_amounts(amounts, set(), {}, Portion(clients=clients))
    assert own == {name: value * clients for name, value in amounts.items() if value is not None}


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=5), HOSTS)
def test_each_end_of_a_stage_is_shared(ends: list[tuple[int, int]], hosts: int) -> None:
    stages = tuple(RateStage(from_per_s=first, to_per_s=last, duration_ms=1000) for first, last in ends)
    if not any(end for pair in ends for end in pair):
        return
    taking_part = min(hosts, most_hosts({"rate_per_s": stages}, {}) or hosts)
    dealt = [
        deal_amounts({"rate_per_s": stages}, {"rate_per_s"}, {}, portion)["rate_per_s"]
        for portion in on_each(taking_part)
    ]
    for index, (first, last) in enumerate(ends):
        for total, name in ((first, "from_per_s"), (last, "to_per_s")):
            found = sum(Fraction(getattr(one[index], name)) for one in dealt)
            assert abs(float(found - total)) <= total / 2**48
            if total >= taking_part:
                assert found == total
