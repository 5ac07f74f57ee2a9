"""Machines of a cloud, for a time: created, listed and removed through Apache libcloud (the extra `leadline[cloud]`).

`model` has the records and the interface of a provider; `aws` and `openstack` implement it; `life` creates, lists and
removes fleets over that interface. What exists is asked of the provider, by the tags of its machines: a fleet can be
listed and removed from any computer. Read docs/decisions/0025-cloud.md first.
"""
