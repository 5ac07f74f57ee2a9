"""The tools that read what they do from a file: k6's script and JMeter's plan, as a user writes them for a load."""

from __future__ import annotations

import json
import math
from typing import Any
from xml.sax.saxutils import escape

from leadline.truths.model import HttpLoad
from leadline.truths.tools import Command, Tool

_K6_SCRIPT, _K6_SUMMARY = "script.js", "summary.json"
_JMETER_PLAN, _JMETER_RESULTS = "plan.jmx", "results.jtl"
_MAX_S = 60
"""How long a load takes at most that ends by number."""


def _k6(load: HttpLoad, address: str, port: int) -> Command:
    argv = ("k6", "run", "--quiet", "--no-usage-report", "--address", "", _K6_SCRIPT)
    script = _K6_TEXT % (json.dumps(_k6_scenario(load)), json.dumps(f"http://{address}:{port}/"))
    return Command(argv, load.number is not None, {_K6_SCRIPT: script}, _K6_SUMMARY)


def _k6_scenario(load: HttpLoad) -> dict[str, Any]:
    """The executor with a load's discipline and end."""
    if load.number is not None:
        end = {"iterations": load.number, "maxDuration": f"{_MAX_S}s"}
        return {"executor": "shared-iterations", "vus": load.connections, **end}
    duration = f"{round(load.duration_s * 1000)}ms"
    if load.rate_per_s is None:
        return {"executor": "constant-vus", "vus": load.connections, "duration": duration}
    users = {"preAllocatedVUs": load.connections, "maxVUs": load.connections}
    return {"executor": "constant-arrival-rate", "rate": load.rate_per_s, "duration": duration, **users}


def _jmeter(load: HttpLoad, address: str, port: int) -> Command:
    argv = ("jmeter", "-n", "-t", _JMETER_PLAN, "-l", _JMETER_RESULTS, "-j", "/dev/null")
    options = "".join(f" -J{name}={value}" for name, value in _JMETER_OPTIONS.items()).split()
    loops = -1 if load.number is None else load.number // load.connections
    timer = "" if load.rate_per_s is None else _JMETER_TIMER % (60 * load.rate_per_s)
    plan = _JMETER_TEXT % {
        "threads": load.connections,
        "by_time": str(load.number is None).lower(),
        "seconds": math.ceil(load.duration_s),
        "loops": loops,
        "host": escape(address),
        "port": port,
        "timer": timer,
    }
    return Command((*argv, *options), load.number is not None, {_JMETER_PLAN: plan}, _JMETER_RESULTS)


_K6_TEXT = """\
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const statuses = new Counter('bad_statuses');
const failed = new Counter('failed');

export const options = { scenarios: { load: %s }, summaryTrendStats: ['med', 'p(99)', 'max'] };

export default function () {
  const answer = http.get(%s);
  // Codes from 1400 on are those of a status: https://grafana.com/docs/k6/latest/javascript-api/error-codes/
  if (answer.error_code >= 1400 && answer.error_code < 1600) statuses.add(1);
  else if (answer.error_code) failed.add(1);
}

export function handleSummary(data) {
  return { 'summary.json': JSON.stringify(data) };
}
"""
_JMETER_OPTIONS = {"jmeter.save.saveservice.output_format": "csv", "summariser.interval": 6}
_JMETER_TIMER = """
    <ConstantThroughputTimer guiclass="TestBeanGUI" testclass="ConstantThroughputTimer" testname="rate" enabled="true">
     <intProp name="calcMode">4</intProp>
     <doubleProp><name>throughput</name><value>%f</value><savedValue>0.0</savedValue></doubleProp>
    </ConstantThroughputTimer>
    <hashTree/>"""
_JMETER_TEXT = """\
<?xml version="1.0" encoding="UTF-8"?>
<jmeterTestPlan version="1.2">
 <hashTree>
  <TestPlan guiclass="TestPlanGui" testclass="TestPlan" testname="plan" enabled="true"/>
  <hashTree>
   <ThreadGroup guiclass="ThreadGroupGui" testclass="ThreadGroup" testname="users" enabled="true">
    <stringProp name="ThreadGroup.num_threads">%(threads)d</stringProp>
    <stringProp name="ThreadGroup.ramp_time">0</stringProp>
    <boolProp name="ThreadGroup.scheduler">%(by_time)s</boolProp>
    <stringProp name="ThreadGroup.duration">%(seconds)d</stringProp>
    <boolProp name="ThreadGroup.same_user_on_next_iteration">true</boolProp>
    <stringProp name="ThreadGroup.on_sample_error">continue</stringProp>
    <elementProp name="ThreadGroup.main_controller" elementType="LoopController">
     <boolProp name="LoopController.continue_forever">false</boolProp>
     <stringProp name="LoopController.loops">%(loops)d</stringProp>
    </elementProp>
   </ThreadGroup>
   <hashTree>
    <HTTPSamplerProxy guiclass="HttpTestSampleGui" testclass="HTTPSamplerProxy" testname="get" enabled="true">
     <boolProp name="HTTPSampler.use_keepalive">true</boolProp>
     <stringProp name="HTTPSampler.domain">%(host)s</stringProp>
     <stringProp name="HTTPSampler.port">%(port)d</stringProp>
     <stringProp name="HTTPSampler.path">/</stringProp>
     <stringProp name="HTTPSampler.method">GET</stringProp>
     <elementProp name="HTTPsampler.Arguments" elementType="Arguments">
      <collectionProp name="Arguments.arguments"/>
     </elementProp>
    </HTTPSamplerProxy>
    <hashTree/>%(timer)s
   </hashTree>
  </hashTree>
 </hashTree>
</jmeterTestPlan>
"""

PLAN_TOOLS = (
    Tool("k6", {HttpLoad: _k6}, ("k6", "version")),
    Tool("jmeter", {HttpLoad: _jmeter}, ("jmeter", "--version", "-j", "/dev/null")),
)
