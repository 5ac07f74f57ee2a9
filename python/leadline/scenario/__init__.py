"""Scenarios: virtual users that send requests. Reads the native format, JMeter's plans, LoadRunner's scripts and HAR
files, writes the native format, and lowers a scenario to what the agent executes.

Every format becomes the same tree of nodes with marks, which `native` validates: an error in a converted file names the
line of the original. Pure, except `files`.
"""
