"""What to measure: plans in YAML, expanded to cases and put in order. Pure, but `load_plan` reads the file."""

from leadline.plan.describe import CaseLine, PlanDescription, TestLine, describe
from leadline.plan.document import Limits, plan_schema
from leadline.plan.estimate import expected_seconds, needs, trial_seconds
from leadline.plan.hosts import HostAddress, Hosts, LabSpec, LinkSpec, Topology
from leadline.plan.http import HttpTest
from leadline.plan.load import load_plan
from leadline.plan.model import Case, Need, Plan, Trial
from leadline.plan.order import expand, schedule, select
from leadline.plan.sut import OpenvpnSut, RouteSut, Sut, WireguardSut
from leadline.plan.targets import METRICS, Target
from leadline.plan.workloads import RrTest, TcpTest, Test, UdpTest

__all__ = [
    "METRICS",
    "Case",
    "CaseLine",
    "HostAddress",
    "Hosts",
    "HttpTest",
    "LabSpec",
    "Limits",
    "LinkSpec",
    "Need",
    "OpenvpnSut",
    "Plan",
    "PlanDescription",
    "RouteSut",
    "RrTest",
    "Sut",
    "Target",
    "TcpTest",
    "Test",
    "TestLine",
    "Topology",
    "Trial",
    "UdpTest",
    "WireguardSut",
    "describe",
    "expand",
    "expected_seconds",
    "load_plan",
    "needs",
    "plan_schema",
    "schedule",
    "select",
    "trial_seconds",
]
